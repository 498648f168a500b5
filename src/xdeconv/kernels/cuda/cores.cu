// Pairs of many dimensions on tensor cores in CUDA C: a warp has PAIRS of them at a time, and all arithmetic is in double precision.
//
// A pair's triangle is in registers in blocks of 8 x 8, of which a lane has [lane / 4][2 (lane % 4) + e], e = 0, 1. So tensor
// cores give a product; and, as the order in which things are added does not matter, they take both of its factors so:
// T_IJ - C_I P^-1 C_J^T, with P the first block on the diagonal and C what is below it, takes products and nothing else.
// P alone goes through shared memory, where it is inverted, those of all pairs at a time, a line by 4 / PAIRS lanes.
//
// For densities what is left of T is eliminated. For sums T is swept: it becomes - T^-1 in place, and blocks move up by one in
// each step, so that the one whose turn it is is always the first. A pivot that is not above zero is NaN, and so is what follows.
//
// Compiled for one kind of rows at a time: REAL, FULL (noise is full, else variances), MASKED (values may be missing), NB (blocks
// of a line), PAIRS (1, 2, 4), KEPT (1: sums are kept in registers, 0: in shared memory), WIDE (1: products of 16 x 8), WARPS.
// Rows lie one after the other: x (n, 8 NB), seen (n, 8 NB), S (n, TILES, 64) or (n, 8 NB); V is (k, TILES, 64).

constexpr int TILES = NB * (NB + 1) / 2;
constexpr int DIM = 8 * NB;
constexpr int LANES = 32 / PAIRS;    // of a pair whose P is inverted
constexpr int PARTS = LANES / 8;     // of a line of P
constexpr int OWN = 8 / PARTS;       // numbers of a part
constexpr int LINE = 10;             // of P in shared memory: eight numbers and a value of x - m
constexpr int PARTIAL = 8 * LINE + 2;  // where sums of four numbers begin; an odd number of 16 bytes keeps pairs on different banks
constexpr int WHOLE = PARTIAL + 4 * DIM;
constexpr int DESK = WHOLE + DIM;    // numbers of shared memory of a pair
constexpr int ROOM = DESK * PAIRS + (KEPT ? 0 : 64 * TILES);  // and of a warp
#define AT(a, b) ((a) * ((a) + 1) / 2 + (b))

struct State {
  double T[PAIRS][TILES][2], z[PAIRS][NB], N[PAIRS][2], D[NB][2], E[NB][2], C[2][2], line[OWN], own, value, product;  // of pivots, without their powers of two
  int exponent;
};

INLINE void load_two(double* out, const double* at) {
  struct alignas(16) Two { double v[2]; };
  const Two two = *(const Two*)at;
  out[0] = two.v[0];
  out[1] = two.v[1];
}

INLINE void store_two(double* at, double a, double b) {
  struct alignas(16) Two { double v[2]; };
  *(Two*)at = Two{{a, b}};
}

// One block each of what is added to, of the left and of the right factor, and where the result goes
struct Product {
  double* out;
  const double *more, *left, *right;
};

#ifdef __CUDACC__
// out = more + left right^T
template <class Of>
INLINE void multiply(State* state, Of of) {
  const Product p = of(state[0]);
  double a = p.more ? p.more[0] : 0, b = p.more ? p.more[1] : 0;
  UNROLL for (int e = 0; e < 2; ++e)
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(a), "+d"(b) : "d"(p.left[e]), "d"(p.right[e]));
  p.out[0] = a;
  p.out[1] = b;
}

// The same of two blocks, one above the other, by one right factor
template <class Of, class And>
INLINE void multiply(State* state, Of of, And also) {
#if WIDE
  const Product p = of(state[0]), q = also(state[0]);
  double a = p.more ? p.more[0] : 0, b = p.more ? p.more[1] : 0, c = q.more ? q.more[0] : 0, d = q.more ? q.more[1] : 0;
  asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+d"(a), "+d"(b), "+d"(c), "+d"(d)
      : "d"(p.left[0]), "d"(q.left[0]), "d"(p.left[1]), "d"(q.left[1]), "d"(p.right[0]), "d"(p.right[1]));
  p.out[0] = a;
  p.out[1] = b;
  q.out[0] = c;
  q.out[1] = d;
#else
  multiply(state, of);
  multiply(state, also);
#endif
}

// 1 / pivot; an estimate of 23 bits and what its error e lacks, 1 + e + e^2
INLINE double inverse_of(double pivot) {
  double guess;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(guess) : "d"(pivot));
  const double e = fma(-pivot, guess, 1.0), inverse = fma(guess, fma(e, e, e), guess);
  return pivot > 0 ? inverse : __longlong_as_double(0x7ff8000000000000ll);
}

// x or 0; where whole lines are of one lane, half as many instructions leave half the bits, which are less than 1e-307
INLINE double unless(bool zero, double x) {
  if (PAIRS < 4) return zero ? 0 : x;
  return __longlong_as_double(__double_as_longlong(x) & ((long long)(zero ? 0 : ~0) << 32 | 0xffffffffll));
}

// Powers of two go from a number to an exponent
INLINE void split(double& x, int& exponent) {
  const int high = __double2hiint(x);
  exponent += (high >> 20) - 1023;
  x = __hiloint2double((high & 0xfffff) | 0x3ff00000, __double2loint(x));
}

INLINE double logarithm(double x) { return sizeof(REAL) == 8 ? log(x) : 0.693147180559945309 * __log2f((float)x); }
#else
template <class Of>
INLINE void multiply(State* state, Of of) {
  double sum[32][2];
  for (int lane = 0; lane < 32; ++lane)
    for (int e = 0; e < 2; ++e) {
      const Product p = of(state[lane]);
      sum[lane][e] = p.more ? p.more[e] : 0;
      for (int c = 0; c < 8; ++c)
        sum[lane][e] += of(state[lane / 4 * 4 + c / 2]).left[c % 2] * of(state[(lane % 4 * 2 + e) * 4 + c / 2]).right[c % 2];
    }
  for (int lane = 0; lane < 32; ++lane)
    for (int e = 0; e < 2; ++e) of(state[lane]).out[e] = sum[lane][e];
}

template <class Of, class And>
INLINE void multiply(State* state, Of of, And also) {
  multiply(state, of);
  multiply(state, also);
}

INLINE double inverse_of(double pivot) { return pivot > 0 ? 1 / pivot : std::sqrt(-1.0); }
INLINE double unless(bool zero, double x) { return zero ? 0 : x; }
INLINE double logarithm(double x) { return std::log(x); }
INLINE void split(double& x, int& exponent) {
  int more = 0;
  x = std::frexp(x, &more);
  exponent += more;
}
#endif

// T = V + S of row i and x - m; a missing value's line is that of the identity, which S holds already
INLINE void load_pair(double (*T)[2], double* z, const REAL* V, const REAL* m, const Rows& rows, index_t i, int lane) {
  struct alignas(2 * sizeof(REAL)) Two { REAL v[2]; };
  const int r = lane / 4, c = lane % 4 * 2;
  UNROLL for (int I = 0; I < NB; ++I) {
    const bool first = lane % 4 == 0 && (!MASKED || rows.seen[i * DIM + 8 * I + r] != 0);
    z[I] = first ? (double)rows.x[i * DIM + 8 * I + r] - (double)m[8 * I + r] : 0;
    UNROLL for (int J = 0; J <= I; ++J) {
      Two two = *(const Two*)(V + AT(I, J) * 64 + 2 * lane);
      if (MASKED) {
        const REAL there = rows.seen[i * DIM + 8 * I + r];
        UNROLL for (int e = 0; e < 2; ++e) two.v[e] *= there * rows.seen[i * DIM + 8 * J + c + e];
      }
      if (FULL) {
        const Two more = *(const Two*)(rows.S + (i * TILES + AT(I, J)) * 64 + 2 * lane);
        UNROLL for (int e = 0; e < 2; ++e) two.v[e] += more.v[e];
      } else if (I == J) {
        UNROLL for (int e = 0; e < 2; ++e)
          if (r == c + e) two.v[e] += rows.S[i * DIM + 8 * I + r];
      }
      UNROLL for (int e = 0; e < 2; ++e) T[AT(I, J)][e] = two.v[e];
    }
  }
}

// A line of P, whose turn is next, goes to shared memory
INLINE void hand_over(State& mine, double* desk, int r, int part) {
  UNROLL for (int c = 0; c < OWN; c += 2) store_two(desk + r * LINE + part * OWN + c, mine.line[c], mine.line[c + 1]);
  desk[r * LINE + 8] = mine.own;
}

// The first blocks on the diagonals become N = - P^-1, which is where lanes need it, and y = P^-1 (x - m)
INLINE void invert(State* state, double* desks) {
  EACH_LANE {
    State& mine = state[PLACE];
    UNROLL for (int p = 0; p < PAIRS; ++p) {
      double* desk = desks + p * DESK;
      store_two(desk + lane / 4 * LINE + lane % 4 * 2, mine.T[p][0][0], mine.T[p][0][1]);
      desk[PARTIAL + lane] = mine.z[p][0];
    }
  }
  SYNC;
  EACH_LANE {
    State& mine = state[PLACE];
    double sums[4], *desk = desks + lane / LANES * DESK;
    const int r = lane % LANES / PARTS, part = lane % PARTS;
    UNROLL for (int c = 0; c < OWN; c += 2) load_two(mine.line + c, desk + r * LINE + part * OWN + c);
    UNROLL for (int c = 0; c < 4; c += 2) load_two(sums + c, desk + PARTIAL + 4 * r + c);
    mine.own = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    if (r == 0) hand_over(mine, desk, r, part);
  }
  SYNC;
  UNROLL for (int s = 0; s < 8; ++s) {
    EACH_LANE {
      State& mine = state[PLACE];
      double next[OWN], *desk = desks + lane / LANES * DESK;
      const int r = lane % LANES / PARTS, part = lane % PARTS;
      UNROLL for (int c = 0; c < OWN; c += 2) load_two(next + c, desk + s * LINE + part * OWN + c);
      const double pivot = OWN == 8 ? next[s % OWN] : desk[s * LINE + s], z = desk[s * LINE + 8], inverse = inverse_of(pivot);
      const double f = (r == s ? -1 : OWN == 8 ? mine.line[s % OWN] : desk[s * LINE + r]) * inverse;
      UNROLL for (int c = 0; c < OWN; ++c) mine.line[c] = unless(r == s, mine.line[c]) - f * next[c];
      if (part == s / OWN) mine.line[s % OWN] = f;
      mine.own = unless(r == s, mine.own) - f * z;
      mine.value -= z * z * inverse;
      mine.product *= pivot;
      if (r == s + 1) hand_over(mine, desk, r, part);
    }
    SYNC;
  }
  EACH_LANE {
    State& mine = state[PLACE];
    double* desk = desks + lane / LANES * DESK;
    const int r = lane % LANES / PARTS, part = lane % PARTS;
    UNROLL for (int c = 0; c < OWN; c += 2) store_two(desk + r * LINE + part * OWN + c, mine.line[c], mine.line[c + 1]);
    desk[PARTIAL + r] = mine.own;
  }
  SYNC;
}

// One block column of the LEFT that there are is eliminated, or swept and put behind the others
template <int LEFT, bool SWEPT>
INLINE void step(State* state, double* desks) {
  invert(state, desks);
  EACH_LANE {
    State& mine = state[PLACE];
    UNROLL for (int p = 0; p < PAIRS; ++p) {
      const double* desk = desks + p * DESK;
      double y[2];
      load_two(mine.N[p], desk + lane / 4 * LINE + lane % 4 * 2);
      load_two(y, desk + PARTIAL + lane % 4 * 2);
      UNROLL for (int I = 1; I < LEFT; ++I)
        mine.z[p][I - 1] = mine.z[p][I] - mine.T[p][AT(I, 0)][0] * y[0] - mine.T[p][AT(I, 0)][1] * y[1];
      if (SWEPT) mine.z[p][LEFT - 1] = lane % 4 == 0 ? desk[PARTIAL + lane / 4] : 0;
    }
  }
  SYNC;
  UNROLL for (int p = 0; p < PAIRS; ++p) {
    UNROLL for (int J = 1; J < LEFT; J += 2) {
      auto one = [=](State& mine) { return Product{mine.D[J], nullptr, mine.T[p][AT(J, 0)], mine.N[p]}; };
      if (J + 1 < LEFT) {
        auto two = [=](State& mine) { return Product{mine.D[J + 1], nullptr, mine.T[p][AT(J + 1, 0)], mine.N[p]}; };
        multiply(state, one, two);
      } else multiply(state, one);
    }
    if (SWEPT) UNROLL for (int J = 1; J < LEFT; ++J)
      multiply(state, [=](State& mine) { return Product{mine.E[J], nullptr, mine.N[p], mine.T[p][AT(J, 0)]}; });
    UNROLL for (int I = 1; I < LEFT; I += 2) {
      const int last = I + 1 < LEFT ? I + 1 : I;
      EACH_LANE UNROLL for (int e = 0; e < 2; ++e)
        UNROLL for (int b = 0; b <= last - I; ++b) state[PLACE].C[b][e] = state[PLACE].T[p][AT(I + b, 0)][e];
      UNROLL for (int J = 1; J <= last; ++J) {
        auto one = [=](State& mine) { return Product{mine.T[p][AT(I - 1, J - 1)], mine.T[p][AT(I, J)], mine.C[0], mine.D[J]}; };
        auto two = [=](State& mine) { return Product{mine.T[p][AT(I, J - 1)], mine.T[p][AT(I + 1, J)], mine.C[1], mine.D[J]}; };
        if (last == I) multiply(state, one);
        else if (J > I) multiply(state, two);
        else multiply(state, one, two);
      }
    }
    if (SWEPT) EACH_LANE {
      State& mine = state[PLACE];
      UNROLL for (int e = 0; e < 2; ++e) {
        UNROLL for (int J = 1; J < LEFT; ++J) mine.T[p][AT(LEFT - 1, J - 1)][e] = -mine.E[J][e];
        mine.T[p][AT(LEFT - 1, LEFT - 1)][e] = mine.N[p][e];
      }
    }
  }
}

#ifdef JOINT
template <int LEFT>
INLINE void eliminate(State* state, double* desks) {
  step<LEFT, false>(state, desks);
  EACH_LANE split(state[PLACE].product, state[PLACE].exponent);
  if constexpr (LEFT > 1) eliminate<LEFT - 1>(state, desks);
}

// log (alpha N) (k, padded), without the constants of rows
KERNEL joint(const REAL* log_weights, const REAL* means, const REAL* V, const REAL* x, const REAL* seen, const REAL* S,
             REAL* out, int k, index_t padded) {
  SHARED(shared);
  BLOCKS
  double* desks = (double*)shared + OWN_WARP * DESK * PAIRS;
  const Rows rows = {x, seen, S, padded};
  State state[PLACES];
  ONCE for (index_t task = block; task < padded / PAIRS * k; task += blocks) {
    const int j = task % k;
    const index_t first = task / k * PAIRS;
    EACH_LANE {
      State& mine = state[PLACE];
      UNROLL for (int p = 0; p < PAIRS; ++p)
        load_pair(mine.T[p], mine.z[p], V + (index_t)j * TILES * 64, means + j * DIM, rows, first + p, lane);
      mine.value = 0;
      mine.product = 1;
      mine.exponent = 0;
    }
    eliminate<NB>(state, desks);
    EACH_LANE if (lane % LANES == 0) {
      const State& mine = state[PLACE];
      const double determinant = 0.693147180559945309 * mine.exponent + logarithm(mine.product);
      out[j * padded + first + lane / LANES] = log_weights[j] + (REAL)(0.5 * (mine.value - determinant));
    }
  }
}
#endif

#ifdef MOMENTS
struct Sums {
  double G[KEPT ? TILES : 1][2], g[(DIM + 31) / 32];
};

// G in blocks and g (chunks, k, 64 TILES + DIM), each of a chunk of rows
KERNEL moments(const REAL* share, const REAL* means, const REAL* V, const REAL* x, const REAL* seen, const REAL* S,
               double* out, int k, index_t padded, int chunk) {
  SHARED(shared);
  BLOCKS
  double *desks = (double*)shared + OWN_WARP * ROOM, *in_shared = desks + PAIRS * DESK;
  const Rows rows = {x, seen, S, padded};
  const index_t chunks = (padded + chunk - 1) / chunk;
  State state[PLACES];
  Sums sums[PLACES];
  ONCE for (index_t task = block; task < chunks * k; task += blocks) {
    const int j = task % k;
    const index_t begin = task / k * chunk, end = begin + chunk < padded ? begin + chunk : padded;
    EACH_LANE {
      Sums& mine = sums[PLACE];
      UNROLL for (int c = 0; c < (DIM + 31) / 32; ++c) mine.g[c] = 0;
      UNROLL for (int t = 0; t < TILES; ++t)
        if (KEPT) mine.G[KEPT ? t : 0][0] = mine.G[KEPT ? t : 0][1] = 0;
        else store_two(in_shared + 64 * t + 2 * lane, 0, 0);
    }
    ONCE for (index_t start = begin; start < end; start += PAIRS) {
      double shares[PAIRS];
      bool any = false;
      UNROLL for (int p = 0; p < PAIRS; ++p) {
        shares[p] = share[j * padded + start + p];
        any = any || shares[p] != 0;
      }
      if (!any) continue;
      EACH_LANE UNROLL for (int p = 0; p < PAIRS; ++p)
        load_pair(state[PLACE].T[p], state[PLACE].z[p], V + (index_t)j * TILES * 64, means + j * DIM, rows, start + p, lane);
      ONCE for (int K = 0; K < NB; ++K) step<NB, true>(state, desks);
      EACH_LANE UNROLL for (int p = 0; p < PAIRS; ++p)
        UNROLL for (int I = 0; I < NB; ++I) desks[p * DESK + PARTIAL + 32 * I + lane] = state[PLACE].z[p][I];
      SYNC;
      EACH_LANE UNROLL for (int p = 0; p < PAIRS; ++p)
        UNROLL for (int c = 0; c < (DIM + 31) / 32; ++c)
          if (lane + 32 * c < DIM) {
            double part[4], *desk = desks + p * DESK;
            load_two(part, desk + PARTIAL + 4 * (lane + 32 * c));
            load_two(part + 2, desk + PARTIAL + 4 * (lane + 32 * c) + 2);
            const double w = (part[0] + part[1]) + (part[2] + part[3]);
            desk[WHOLE + lane + 32 * c] = w;
            if (shares[p] != 0) sums[PLACE].g[c] += shares[p] * w;
          }
      SYNC;
      EACH_LANE UNROLL for (int p = 0; p < PAIRS; ++p) {
        if (shares[p] == 0) continue;
        const double* w = desks + p * DESK + WHOLE;
        UNROLL for (int J = 0; J < NB; ++J) {
          double of_column[2];
          load_two(of_column, w + 8 * J + lane % 4 * 2);
          UNROLL for (int I = J; I < NB; ++I) {
            const double of_line = shares[p] * w[8 * I + lane / 4];
            double more[2];
            UNROLL for (int e = 0; e < 2; ++e) {
              double T = state[PLACE].T[p][AT(I, J)][e];
              if (MASKED && I == J && lane / 4 == lane % 4 * 2 + e && rows.seen[(start + p) * DIM + 8 * I + lane / 4] == 0) T = 0;
              more[e] = of_line * of_column[e] + shares[p] * T;
            }
            if (KEPT) {
              UNROLL for (int e = 0; e < 2; ++e) sums[PLACE].G[KEPT ? AT(I, J) : 0][e] += more[e];
            } else {
              double before[2], *at = in_shared + 64 * AT(I, J) + 2 * lane;
              load_two(before, at);
              store_two(at, before[0] + more[0], before[1] + more[1]);
            }
          }
        }
      }
      SYNC;
    }
    EACH_LANE {
      double* at = out + (task / k * k + j) * (64 * TILES + DIM);
      UNROLL for (int t = 0; t < TILES; ++t) {
        double G[2];
        if (KEPT) UNROLL for (int e = 0; e < 2; ++e) G[e] = sums[PLACE].G[KEPT ? t : 0][e];
        else load_two(G, in_shared + 64 * t + 2 * lane);
        store_two(at + 64 * t + 2 * lane, G[0], G[1]);
      }
      UNROLL for (int c = 0; c < (DIM + 31) / 32; ++c)
        if (lane + 32 * c < DIM) at[64 * TILES + lane + 32 * c] = sums[PLACE].g[c];
    }
  }
}
#endif
