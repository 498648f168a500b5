// Pairs of 11 to 128 dimensions in CUDA C: a few lanes of a warp share a pair, whose triangle lies in shared memory in tiles
// of 4 x 4 that pass through registers.
//
// A pair is factored, T = L L^T, in place of T, block column by block column; then L^-1 takes the place of L, from its
// last block column to its first; then lanes add w w^T - L^-T L^-1 to the tiles of G that they keep, over all rows of a chunk.
// Diagonals of L hold 1 / L_aa. A pivot that is not above zero is NaN, and so is all that comes after it.
//
// Compiled for one kind of rows at a time: REAL, FULL (noise is packed triangles, else variances), MASKED (values may be
// missing), LANES (of a pair), KEPT (tiles of G that a lane keeps in registers; 0: in memory). Dimensions are known at run time.
//
// Without a GPU the same source runs on a CPU, one lane after the other between two synchronisations (tests compile it so).

#ifdef __CUDACC__
#define INLINE __device__ __forceinline__
#define KERNEL extern "C" __global__ void __launch_bounds__(32)
#define EACH_LANE for (int lane = threadIdx.x, once = 1; once; once = 0)
#define SYNC __syncwarp()
#define PRIVATE(kind, name, size) kind name[(size) ? (size) : 1]
#define MY(name) name
#define ANY(name) __any_sync(0xffffffffu, name[0] != 0)
#define SHARED(name) extern __shared__ __align__(16) unsigned char memory[]; REAL* name = (REAL*)memory
#define BLOCKS const long long block = blockIdx.x, blocks = gridDim.x;
#define UNROLL _Pragma("unroll")
#define ONCE _Pragma("unroll 1")
#else
#include <cmath>
using std::log;
using std::sqrt;
#define INLINE static inline
#define KERNEL extern "C" void
#ifdef BACKWARDS
#define EACH_LANE for (int lane = 31; lane >= 0; --lane)
#else
#define EACH_LANE for (int lane = 0; lane < 32; ++lane)
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
#endif

typedef long long index_t;
constexpr int PER_QUAD = 16 / sizeof(REAL);
constexpr int STEP = 16 + PER_QUAD;  // of a tile: the odd number of 16 bytes keeps lanes on different banks
constexpr int PAIRS = 32 / LANES;    // of a warp

struct alignas(16) Quad { REAL v[PER_QUAD]; };

INLINE int triangle(int I) { return I * (I + 1) / 2; }
INLINE REAL* tile(REAL* T, int I, int J) { return T + (triangle(I) + J) * STEP; }

INLINE void load_tile(REAL* out, const REAL* at) {
  UNROLL for (int c = 0; c < 16; c += PER_QUAD) {
    const Quad quad = *(const Quad*)(at + c);
    UNROLL for (int e = 0; e < PER_QUAD; ++e) out[c + e] = quad.v[e];
  }
}

INLINE void store_tile(REAL* at, const REAL* values) {
  UNROLL for (int c = 0; c < 16; c += PER_QUAD) {
    Quad quad;
    UNROLL for (int e = 0; e < PER_QUAD; ++e) quad.v[e] = values[c + e];
    *(Quad*)(at + c) = quad;
  }
}

INLINE void load_four(REAL* out, const REAL* at) {
  UNROLL for (int c = 0; c < 4; c += PER_QUAD) {
    const Quad quad = *(const Quad*)(at + c);
    UNROLL for (int e = 0; e < PER_QUAD; ++e) out[c + e] = quad.v[e];
  }
}

INLINE void store_four(REAL* at, const REAL* values) {
  UNROLL for (int c = 0; c < 4; c += PER_QUAD) {
    Quad quad;
    UNROLL for (int e = 0; e < PER_QUAD; ++e) quad.v[e] = values[c + e];
    *(Quad*)(at + c) = quad;
  }
}

// out - left right^T
INLINE void less_by_transposed(REAL* out, const REAL* left, const REAL* right) {
  REAL a[16], b[16];
  load_tile(a, left);
  load_tile(b, right);
  UNROLL for (int r = 0; r < 4; ++r)
    UNROLL for (int s = 0; s < 4; ++s)
      UNROLL for (int c = 0; c < 4; ++c) out[4 * r + s] -= a[4 * r + c] * b[4 * s + c];
}

// out + left right
INLINE void more_by(REAL* out, const REAL* left, const REAL* right) {
  REAL a[16], b[16];
  load_tile(a, left);
  load_tile(b, right);
  UNROLL for (int r = 0; r < 4; ++r)
    UNROLL for (int s = 0; s < 4; ++s)
      UNROLL for (int c = 0; c < 4; ++c) out[4 * r + s] += a[4 * r + c] * b[4 * c + s];
}

// out - left^T right
INLINE void less_transposed_by(REAL* out, const REAL* left, const REAL* right) {
  REAL a[16], b[16];
  load_tile(a, left);
  load_tile(b, right);
  UNROLL for (int c = 0; c < 4; ++c)
    UNROLL for (int r = 0; r < 4; ++r)
      UNROLL for (int s = 0; s < 4; ++s) out[4 * r + s] -= a[4 * c + r] * b[4 * c + s];
}

// Rows as they lie in memory, row axis last; V is (k, tiles, 16), m is (k, 4 nb)
struct Rows {
  const REAL *x, *seen, *S;
  index_t padded;
};

// A tile of T = V + S of row i; a missing value's line is that of the identity, which S holds already
INLINE void load_covariance(REAL* out, const REAL* V, const Rows& rows, index_t i, int I, int J) {
  load_tile(out, V + (triangle(I) + J) * 16);
  if (MASKED) {
    REAL a[4], b[4];
    UNROLL for (int r = 0; r < 4; ++r) {
      a[r] = rows.seen[(4 * I + r) * rows.padded + i];
      b[r] = rows.seen[(4 * J + r) * rows.padded + i];
    }
    UNROLL for (int r = 0; r < 4; ++r)
      UNROLL for (int s = 0; s < 4; ++s) out[4 * r + s] *= a[r] * b[s];
  }
  if (FULL) {
    const REAL* line = rows.S + ((index_t)triangle(4 * I) + 4 * J) * rows.padded + i;
    UNROLL for (int r = 0; r < 4; ++r) {
      UNROLL for (int s = 0; s < 4; ++s)
        if (I != J || s <= r) out[4 * r + s] += line[s * rows.padded];
      line += (4 * I + r + 1) * rows.padded;
    }
  } else if (I == J) {
    UNROLL for (int r = 0; r < 4; ++r) out[5 * r] += rows.S[(4 * I + r) * rows.padded + i];
  }
}

// The factor of a tile on the diagonal, with 1 / L_aa on its own, and what log|T| has of it
INLINE REAL factor_tile(REAL* D) {
  REAL logarithm = 0;
  UNROLL for (int a = 0; a < 4; ++a) {
    REAL pivot = D[5 * a];
    UNROLL for (int c = 0; c < a; ++c) pivot -= D[4 * a + c] * D[4 * a + c];
    const REAL inverse = pivot > 0 ? 1 / sqrt(pivot) : sqrt((REAL)-1);
    logarithm += log(inverse);
    D[5 * a] = inverse;
    UNROLL for (int r = a + 1; r < 4; ++r) {
      REAL value = D[4 * r + a];
      UNROLL for (int c = 0; c < a; ++c) value -= D[4 * r + c] * D[4 * a + c];
      D[4 * r + a] = value * inverse;
    }
  }
  return logarithm;
}

// tile D^-T
INLINE void divide_by_transposed(REAL* out, const REAL* D) {
  UNROLL for (int r = 0; r < 4; ++r)
    UNROLL for (int s = 0; s < 4; ++s) {
      REAL value = out[4 * r + s];
      UNROLL for (int c = 0; c < s; ++c) value -= out[4 * r + c] * D[4 * s + c];
      out[4 * r + s] = value * D[5 * s];
    }
}

// The four values of z = L^-1 (x - m) that a block column gives
INLINE void solve(REAL* z, const REAL* D, REAL* T, const REAL* all, const REAL* m, const Rows& rows, index_t i, int J) {
  UNROLL for (int r = 0; r < 4; ++r) {
    z[r] = rows.x[(4 * J + r) * rows.padded + i] - m[4 * J + r];
    if (MASKED) z[r] *= rows.seen[(4 * J + r) * rows.padded + i];
  }
  ONCE for (int K = 0; K < J; ++K) {
    REAL a[16], b[4];
    load_tile(a, tile(T, J, K));
    load_four(b, all + 4 * K);
    UNROLL for (int r = 0; r < 4; ++r)
      UNROLL for (int c = 0; c < 4; ++c) z[r] -= a[4 * r + c] * b[c];
  }
  UNROLL for (int r = 0; r < 4; ++r) {
    UNROLL for (int c = 0; c < r; ++c) z[r] -= D[4 * r + c] * z[c];
    z[r] *= D[5 * r];
  }
}

// One block column of L and of z, by the lane that is ``own`` of a pair's; the log-density has more by what comes back
INLINE REAL factor_column(REAL* T, REAL* z, const REAL* V, const REAL* m, const Rows& rows, index_t i, int nb, int J, int own) {
  REAL D[16], part[4];
  load_covariance(D, V, rows, i, J, J);
  ONCE for (int K = 0; K < J; ++K) less_by_transposed(D, tile(T, J, K), tile(T, J, K));
  REAL more = factor_tile(D);
  solve(part, D, T, z, m, rows, i, J);
  UNROLL for (int r = 0; r < 4; ++r) more -= (REAL)0.5 * part[r] * part[r];
  ONCE for (int I = J + 1 + own; I < nb; I += LANES) {
    REAL C[16];
    load_covariance(C, V, rows, i, I, J);
    ONCE for (int K = 0; K < J; ++K) less_by_transposed(C, tile(T, I, K), tile(T, J, K));
    divide_by_transposed(C, D);
    store_tile(tile(T, I, J), C);
  }
  if (own == 0) {
    store_tile(tile(T, J, J), D);
    store_four(z + 4 * J, part);
  }
  return more;
}

// The inverse of a tile on the diagonal; zero where a value is missing, which nothing is learnt of
INLINE void invert_tile(REAL* at, const Rows& rows, index_t i, int J) {
  REAL D[16], A[16];
  load_tile(D, at);
  UNROLL for (int s = 0; s < 4; ++s)
    UNROLL for (int r = 0; r < 4; ++r) {
      REAL value = r == s ? 1 : 0;
      UNROLL for (int c = s; c < r; ++c) value -= D[4 * r + c] * A[4 * c + s];
      A[4 * r + s] = r < s ? 0 : value * D[5 * r];
    }
  if (MASKED)
    UNROLL for (int r = 0; r < 4; ++r) A[5 * r] *= rows.seen[(4 * J + r) * rows.padded + i];
  store_tile(at, A);
}

// A tile of the inverse below the diagonal, - (sum over K of A_IK L_KJ) A_JJ, while column J still holds L
INLINE void inverse_below(REAL* out, REAL* T, int I, int J) {
  REAL sum[16], D[16];
  UNROLL for (int c = 0; c < 16; ++c) sum[c] = 0;
  ONCE for (int K = J + 1; K <= I; ++K) more_by(sum, tile(T, I, K), tile(T, K, J));
  load_tile(D, tile(T, J, J));
  UNROLL for (int r = 0; r < 4; ++r)
    UNROLL for (int s = 0; s < 4; ++s) {
      REAL value = 0;
      UNROLL for (int c = s; c < 4; ++c) value -= sum[4 * r + c] * D[4 * c + s];
      out[4 * r + s] = value;
    }
}

// Four values of w = A^T z
INLINE void pull_back(REAL* out, REAL* T, const REAL* z, int nb, int I) {
  UNROLL for (int r = 0; r < 4; ++r) out[r] = 0;
  ONCE for (int K = I; K < nb; ++K) {
    REAL a[16], b[4];
    load_tile(a, tile(T, K, I));
    load_four(b, z + 4 * K);
    UNROLL for (int c = 0; c < 4; ++c)
      UNROLL for (int r = 0; r < 4; ++r) out[r] += a[4 * c + r] * b[c];
  }
}

// A tile of w w^T - A^T A
INLINE void spread(REAL* out, REAL* A, const REAL* w, int nb, int I, int J) {
  REAL a[4], b[4];
  load_four(a, w + 4 * I);
  load_four(b, w + 4 * J);
  UNROLL for (int r = 0; r < 4; ++r)
    UNROLL for (int s = 0; s < 4; ++s) out[4 * r + s] = a[r] * b[s];
  ONCE for (int K = nb - 1; K >= I; --K) less_transposed_by(out, tile(A, K, I), tile(A, K, J));
}

INLINE int row_of_tile(int t) {
  int I = 0;
  while (triangle(I + 1) <= t) ++I;
  return I;
}

// Numbers of shared memory that a pair takes: tiles, z, w, and what keeps pairs on different banks
INLINE int numbers_of(int nb) {
  const int quads = (triangle(nb) * STEP + 8 * nb) / PER_QUAD;
  return (quads | 1) * PER_QUAD;
}

// log (alpha N) (k, padded), without the constants of rows
KERNEL joint(const REAL* log_weights, const REAL* means, const REAL* V, const REAL* x, const REAL* seen, const REAL* S,
             REAL* out, int k, index_t padded, int nb) {
  SHARED(shared);
  BLOCKS
  const Rows rows = {x, seen, S, padded};
  const int numbers = numbers_of(nb), tiles = triangle(nb);
  for (index_t task = block; task < padded / PAIRS * k; task += blocks) {
    const int j = task % k;
    const index_t first = task / k * PAIRS;
    PRIVATE(REAL, value, 1);
    EACH_LANE MY(value)[0] = log_weights[j];
    for (int J = 0; J < nb; ++J) {
      EACH_LANE {
        REAL* T = shared + lane / LANES * numbers;
        MY(value)[0] += factor_column(T, T + tiles * STEP, V + (index_t)j * tiles * 16, means + j * 4 * nb, rows,
                                      first + lane / LANES, nb, J, lane % LANES);
      }
      SYNC;
    }
    EACH_LANE if (lane % LANES == 0) out[j * padded + first + lane / LANES] = MY(value)[0];
    SYNC;
  }
}

// g (chunks, k, 4 nb) and the tiles of G (chunks, sets, k, tiles, 16); sets of lanes share the rows where tiles are few
KERNEL moments(const REAL* share, const REAL* means, const REAL* V, const REAL* x, const REAL* seen, const REAL* S,
               REAL* out_g, REAL* out_G, int k, index_t padded, int nb, int chunk) {
  SHARED(shared);
  BLOCKS
  const Rows rows = {x, seen, S, padded};
  const int numbers = numbers_of(nb), tiles = triangle(nb), sets = tiles < 32 ? 32 / tiles : 1;
  const index_t chunks = (padded + chunk - 1) / chunk;
  for (index_t task = block; task < chunks * k; task += blocks) {
    const int j = task % k;
    const index_t begin = task / k * chunk, end = begin + chunk < padded ? begin + chunk : padded;
    PRIVATE(REAL, kept, KEPT * 16);
    PRIVATE(REAL, first, 4);
    PRIVATE(REAL, own, 1);
    PRIVATE(REAL, waiting, 16);
    EACH_LANE {
      UNROLL for (int c = 0; c < KEPT * 16; ++c) MY(kept)[c] = 0;
      UNROLL for (int c = 0; c < 4; ++c) MY(first)[c] = 0;
      if (KEPT == 0)
        for (int t = lane; t < tiles; t += 32)
          for (int c = 0; c < 16; ++c) out_G[((task / k * k + j) * tiles + t) * 16 + c] = 0;
    }
    ONCE for (index_t start = begin; start < end; start += PAIRS) {
      EACH_LANE MY(own)[0] = share[j * padded + start + lane / LANES];
      if (!ANY(own)) continue;
      ONCE for (int J = 0; J < nb; ++J) {
        EACH_LANE {
          REAL* T = shared + lane / LANES * numbers;
          factor_column(T, T + tiles * STEP, V + (index_t)j * tiles * 16, means + j * 4 * nb, rows,
                        start + lane / LANES, nb, J, lane % LANES);
        }
        SYNC;
      }
      EACH_LANE for (int J = lane % LANES; J < nb; J += LANES)
        invert_tile(tile(shared + lane / LANES * numbers, J, J), rows, start + lane / LANES, J);
      SYNC;
      ONCE for (int J = nb - 2; J >= 0; --J)
        ONCE for (int last = nb - 1; last > J; last -= LANES) {
          EACH_LANE if (last - lane % LANES > J)
            inverse_below(MY(waiting), shared + lane / LANES * numbers, last - lane % LANES, J);
          SYNC;
          EACH_LANE if (last - lane % LANES > J)
            store_tile(tile(shared + lane / LANES * numbers, last - lane % LANES, J), MY(waiting));
          SYNC;
        }
      EACH_LANE for (int I = lane % LANES; I < nb; I += LANES) {
        REAL w[4], *T = shared + lane / LANES * numbers, *z = T + tiles * STEP;
        pull_back(w, T, z, nb, I);
        store_four(z + 4 * nb + 4 * I, w);
      }
      SYNC;
      EACH_LANE {
        const int set = tiles < 32 ? lane / tiles : 0;
        ONCE for (int pair = 0; pair < PAIRS; ++pair) {
          REAL *A = shared + pair * numbers, *w = A + tiles * STEP + 4 * nb;
          const REAL r = share[j * padded + start + pair];
          if (r == 0) continue;
          UNROLL for (int c = 0; c < 4; ++c)
            if (lane + 32 * c < 4 * nb) MY(first)[c] += r * w[lane + 32 * c];
        }
        if (set < sets) ONCE for (int pair = set; pair < PAIRS; pair += sets) {
          REAL *A = shared + pair * numbers, *w = A + tiles * STEP + 4 * nb;
          const REAL r = share[j * padded + start + pair];
          if (r == 0) continue;
          REAL more[16];
          if (KEPT == 0) {
            for (int t = lane; t < tiles; t += 32) {
              const int I = row_of_tile(t);
              spread(more, A, w, nb, I, t - triangle(I));
              REAL* at = out_G + ((task / k * k + j) * tiles + t) * 16;
              UNROLL for (int c = 0; c < 16; ++c) at[c] += r * more[c];
            }
          } else {
            UNROLL for (int e = 0; e < KEPT; ++e) {
              const int t = tiles < 32 ? lane % tiles : lane + 32 * e;
              if (e > 0 && t >= tiles) break;
              const int I = row_of_tile(t);
              spread(more, A, w, nb, I, t - triangle(I));
              UNROLL for (int c = 0; c < 16; ++c) MY(kept)[16 * e + c] += r * more[c];
            }
          }
        }
      }
      SYNC;
    }
    EACH_LANE {
      const int set = tiles < 32 ? lane / tiles : 0;
      UNROLL for (int c = 0; c < 4; ++c)
        if (lane + 32 * c < 4 * nb) out_g[(task / k * k + j) * 4 * nb + lane + 32 * c] = MY(first)[c];
      UNROLL for (int e = 0; e < KEPT; ++e) {
        const int t = tiles < 32 ? lane % tiles : lane + 32 * e;
        if (set < sets && t < tiles) {
          REAL* at = out_G + (((task / k * sets + set) * k + j) * tiles + t) * 16;
          UNROLL for (int c = 0; c < 16; ++c) at[c] = MY(kept)[16 * e + c];
        }
      }
    }
  }
}
