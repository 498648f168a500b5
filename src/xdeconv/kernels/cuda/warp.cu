// What kernels of a warp or two per block share, on a GPU and, one lane after the other between two synchronisations, as C++ on a CPU:
// tests compile them so where there is no GPU.

#ifndef THREADS
#define THREADS 32  // that work together
#endif
#ifndef WARPS
#define WARPS 1  // of a block, each with work of its own
#endif

#ifdef __CUDACC__
#define INLINE __device__ __forceinline__
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS * WARPS)
#define EACH_LANE for (int lane = threadIdx.x % THREADS, once = 1; once; once = 0)
#define OWN_WARP (threadIdx.x / THREADS)
#if THREADS == 32
#define SYNC __syncwarp()
#else
#define SYNC __syncthreads()
#endif
#define PLACE 0
#define PLACES 1
#define PRIVATE(kind, name, size) kind name[(size) ? (size) : 1]
#define MY(name) name
#define ANY(name) __any_sync(0xffffffffu, name[0] != 0)
#define SHARED(name) extern __shared__ __align__(16) unsigned char memory[]; REAL* name = (REAL*)memory
#define BLOCKS const long long block = blockIdx.x * (long long)WARPS + OWN_WARP, blocks = gridDim.x * (long long)WARPS;
#define UNROLL _Pragma("unroll")
#define RECIPROCAL(x) (sizeof(REAL) == 4 ? (REAL)__fdividef(1.0f, x) : 1 / x)
#define LOG(x) (sizeof(REAL) == 4 ? (REAL)0.69314718f * __log2f(x) : log(x))
#define ONCE _Pragma("unroll 1")
#define TWICE _Pragma("unroll 2")
#else
#include <cmath>
using std::sqrt;
static inline REAL rsqrt(REAL x) { return 1 / sqrt(x); }
#define LOG(x) std::log(x)
#define RECIPROCAL(x) (1 / (x))
#define PLACE lane
#define PLACES THREADS
#define OWN_WARP 0
#define INLINE static inline
#define KERNEL extern "C" void
#ifdef BACKWARDS
#define EACH_LANE for (int lane = THREADS - 1; lane >= 0; --lane)
#else
#define EACH_LANE for (int lane = 0; lane < THREADS; ++lane)
#endif
#define SYNC
#define PRIVATE(kind, name, size) kind name[32][(size) ? (size) : 1]
#define MY(name) name[lane]
static bool any_of(const REAL (*values)[1]) { for (int l = 0; l < 32; ++l) if (values[l][0] != 0) return true; return false; }
#define ANY(name) any_of(name)
#define SHARED(name) alignas(16) static REAL name[1 << 18]
#define BLOCKS const long long block = 0, blocks = 1;
#define UNROLL
#define ONCE
#define TWICE
#endif

typedef long long index_t;
constexpr int PER_QUAD = 16 / sizeof(REAL);

struct alignas(16) Quad { REAL v[PER_QUAD]; };

// COUNT numbers from memory and into it, 16 bytes at a time
template <int COUNT>
INLINE void load(REAL* out, const REAL* at) {
  UNROLL for (int c = 0; c < COUNT; c += PER_QUAD) {
    const Quad quad = *(const Quad*)(at + c);
    UNROLL for (int e = 0; e < PER_QUAD; ++e) out[c + e] = quad.v[e];
  }
}

template <int COUNT>
INLINE void store(REAL* at, const REAL* values) {
  UNROLL for (int c = 0; c < COUNT; c += PER_QUAD) {
    Quad quad;
    UNROLL for (int e = 0; e < PER_QUAD; ++e) quad.v[e] = values[c + e];
    *(Quad*)(at + c) = quad;
  }
}

// Rows as they lie in memory, row axis last
struct Rows {
  const REAL *x, *seen, *S;
  index_t padded;
};

// 1 / sqrt, NaN of what is not above zero
INLINE REAL inverse_root(REAL pivot) { return pivot > 0 ? rsqrt(pivot) : sqrt((REAL)-1); }
