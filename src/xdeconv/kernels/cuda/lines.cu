// Pairs of many dimensions in CUDA C: a lane has a line of a pair's T, or two, in registers.
//
// Step by step a column of T goes through shared memory to all lanes of its pair. Columns move up by one in each step, so that
// the one whose turn it is has a number that the compiler knows: after DIM steps they are where they were. For densities
// what is left of T is eliminated (T = L D L^T). For sums T is swept: it becomes - T^-1 in place, with a unit diagonal before,
// so that pivots are at most 1. A pivot that is not above zero is NaN, and so is all that comes after it.
//
// Compiled for one kind of rows at a time: REAL, FULL (noise is packed triangles, else variances), MASKED (values may be
// missing), DIM (dimensions, whole blocks of four), LANES (of a pair), LINES (of a lane), THREADS, KEPT (1: sums are kept in
// registers, 0: in shared memory). Rows lie one after the other: x (n, DIM), seen (n, DIM), S (n, SIZE) or (n, DIM); V is (k, SIZE).

constexpr int PAIRS = THREADS / LANES;
constexpr int SIZE = (DIM * (DIM + 1) / 2 + 3) / 4 * 4;
constexpr int COLUMN = DIM + 4;  // of T, and the value of z beside it
constexpr int DESK = SIZE + 2 * COLUMN + 2 * DIM + (KEPT ? 0 : DIM * LANES * LINES);  // numbers in shared memory of a pair
#define AT(a, b) ((a) * ((a) + 1) / 2 + (b))

INLINE REAL inverse_of(REAL pivot) { return pivot > 0 ? RECIPROCAL(pivot) : sqrt((REAL)-1); }

// V + S of row i in shared memory, a part by each lane of the pair
INLINE void stage(REAL* T, const REAL* V, const REAL* S, index_t i, int own) {
  for (int c = PER_QUAD * own; c < SIZE; c += PER_QUAD * LANES) {
    Quad quad = *(const Quad*)(V + c);
    if (FULL) {
      const Quad more = *(const Quad*)(S + i * SIZE + c);
      UNROLL for (int e = 0; e < PER_QUAD; ++e) quad.v[e] += more.v[e];
    }
    *(Quad*)(T + c) = quad;
  }
}

// Line r of T and a value of x - m; a missing value's line is that of the identity
INLINE bool load_line(REAL* T, REAL* z, const REAL* shared, const REAL* m, const Rows& rows, index_t i, int r) {
  const bool there = r < DIM && (!MASKED || rows.seen[i * DIM + r] != 0);
  *z = there ? rows.x[i * DIM + r] - m[r] : 0;
  UNROLL for (int c = 0; c < DIM; ++c) {
    REAL value = c == r ? 1 : 0;
    if (there && (!MASKED || rows.seen[i * DIM + c] != 0)) {
      value = shared[r < c ? AT(c, r) : AT(r, c)];
      if (!FULL && c == r) value += rows.S[i * DIM + r];
    }
    T[c] = value;
  }
  return there;
}

// Column k of T goes to all lanes, its own value first
INLINE void send(REAL* column, REAL value, REAL z, int r, int k) {
  if (r >= DIM) return;
  column[r < k ? r - k + DIM : r - k] = value;
  if (r == k) column[DIM] = z;
}

// T - f column, one place further up, in the first WIDTH columns
template <int WIDTH>
INLINE void subtract(REAL* T, const REAL* column, REAL f) {
  REAL next[PER_QUAD];
  UNROLL for (int c = 0; c < WIDTH; c += PER_QUAD) {
    load<PER_QUAD>(next, column + c);
    UNROLL for (int e = 0; e < PER_QUAD; ++e)
      if (c + e > 0 && c + e < WIDTH) T[c + e - 1] = T[c + e] - f * next[e];
  }
}

struct State {
  REAL T[LINES][DIM], z[LINES], value, product;
};

// Eight steps of the elimination, where WIDTH columns are left, and all that follow
template <int WIDTH>
INLINE void eliminate(State* state, REAL* shared) {
  ONCE for (int step = 0; step < (WIDTH < 8 ? WIDTH : 8); ++step) {
    const int k = DIM - WIDTH + step;
    EACH_LANE {
      State& mine = state[PLACE];
      REAL* column = shared + lane / LANES * DESK + SIZE + k % 2 * COLUMN;
      UNROLL for (int l = 0; l < LINES; ++l) send(column, mine.T[l][0], mine.z[l], lane % LANES + l * LANES, k);
    }
    SYNC;
    EACH_LANE {
      State& mine = state[PLACE];
      const REAL* column = shared + lane / LANES * DESK + SIZE + k % 2 * COLUMN;
      const REAL pivot = column[0], z = column[DIM], inverse = inverse_of(pivot);
      if (sizeof(REAL) == 4) mine.value -= LOG(pivot) + z * z * inverse;
      else mine.value -= z * z * inverse;
      mine.product *= pivot > 0 ? pivot : inverse;
      UNROLL for (int l = 0; l < LINES; ++l) {
        const REAL f = mine.T[l][0] * inverse;
        subtract<WIDTH>(mine.T[l], column, f);
        mine.z[l] -= f * z;
      }
    }
  }
  if (sizeof(REAL) == 8) EACH_LANE {
    State& mine = state[PLACE];
    mine.value -= LOG(mine.product);
    mine.product = 1;
  }
  if constexpr (WIDTH > 8) eliminate<WIDTH - 8>(state, shared);
}

#ifdef JOINT
// log (alpha N) (k, padded), without the constants of rows
KERNEL joint(const REAL* log_weights, const REAL* means, const REAL* V, const REAL* x, const REAL* seen, const REAL* S,
             REAL* out, int k, index_t padded) {
  SHARED(shared);
  BLOCKS
  const Rows rows = {x, seen, S, padded};
  State state[PLACES];
  for (index_t task = block; task < padded / PAIRS * k; task += blocks) {
    const int j = task % k;
    const index_t first = task / k * PAIRS;
    EACH_LANE stage(shared + lane / LANES * DESK, V + (index_t)j * SIZE, S, first + lane / LANES, lane % LANES);
    SYNC;
    EACH_LANE {
      State& mine = state[PLACE];
      UNROLL for (int l = 0; l < LINES; ++l)
        load_line(mine.T[l], &mine.z[l], shared + lane / LANES * DESK, means + j * DIM, rows, first + lane / LANES,
                  lane % LANES + l * LANES);
      mine.value = 0;
      mine.product = 1;
    }
    eliminate<DIM>(state, shared);
    EACH_LANE if (lane % LANES == 0)
      out[j * padded + first + lane / LANES] = log_weights[j] + (REAL)0.5 * state[PLACE].value;
    SYNC;
  }
}
#endif

#ifdef MOMENTS
struct Sums {
  REAL T[LINES][DIM], z[LINES], scale[LINES], first[LINES], kept[KEPT ? LINES * DIM : 1], share;
  bool there[LINES];
};

// g and G (chunks, PAIRS, k, DIM, DIM + 4), a line of G and a value of g of a row's chunk each
KERNEL moments(const REAL* share, const REAL* means, const REAL* V, const REAL* x, const REAL* seen, const REAL* S,
               REAL* out, int k, index_t padded, int chunk) {
  SHARED(shared);
  BLOCKS
  const Rows rows = {x, seen, S, padded};
  const index_t chunks = (padded + chunk - 1) / chunk;
  Sums sums[PLACES];
  for (index_t task = block; task < chunks * k; task += blocks) {
    const int j = task % k;
    const index_t begin = task / k * chunk, end = begin + chunk < padded ? begin + chunk : padded;
    EACH_LANE {
      Sums& mine = sums[PLACE];
      REAL* desk = shared + lane / LANES * DESK;
      UNROLL for (int l = 0; l < LINES; ++l) mine.first[l] = 0;
      if (KEPT) {
        UNROLL for (int c = 0; c < LINES * DIM; ++c) mine.kept[KEPT ? c : 0] = 0;
      } else {
        for (int c = lane % LANES; c < DIM * LANES * LINES; c += LANES) desk[SIZE + 2 * COLUMN + 2 * DIM + c] = 0;
      }
    }
    ONCE for (index_t start = begin; start < end; start += PAIRS) {
      bool any = false;
      UNROLL for (int pair = 0; pair < PAIRS; ++pair) any = any || share[j * padded + start + pair] != 0;
      if (!any) continue;
      EACH_LANE {
        sums[PLACE].share = share[j * padded + start + lane / LANES];
        stage(shared + lane / LANES * DESK, V + (index_t)j * SIZE, S, start + lane / LANES, lane % LANES);
      }
      SYNC;
      EACH_LANE {
        Sums& mine = sums[PLACE];
        REAL* desk = shared + lane / LANES * DESK;
        UNROLL for (int l = 0; l < LINES; ++l) {
          const int r = lane % LANES + l * LANES;
          const index_t i = start + lane / LANES;
          mine.there[l] = load_line(mine.T[l], &mine.z[l], desk, means + j * DIM, rows, i, r);
          REAL own = mine.there[l] ? desk[AT(r, r)] : 1;
          if (!FULL && mine.there[l]) own += rows.S[i * DIM + r];
          mine.scale[l] = inverse_root(own);
          if (r < DIM) desk[SIZE + 2 * COLUMN + r] = mine.scale[l];
        }
      }
      SYNC;
      EACH_LANE {
        Sums& mine = sums[PLACE];
        const REAL* scales = shared + lane / LANES * DESK + SIZE + 2 * COLUMN;
        UNROLL for (int c = 0; c < DIM; c += PER_QUAD) {
          REAL scale[PER_QUAD];
          load<PER_QUAD>(scale, scales + c);
          UNROLL for (int l = 0; l < LINES; ++l)
            UNROLL for (int e = 0; e < PER_QUAD; ++e) mine.T[l][c + e] *= mine.scale[l] * scale[e];
        }
        UNROLL for (int l = 0; l < LINES; ++l) mine.z[l] *= mine.scale[l];
      }
      ONCE for (int step = 0; step < DIM; ++step) {
        EACH_LANE {
          Sums& mine = sums[PLACE];
          REAL* column = shared + lane / LANES * DESK + SIZE + step % 2 * COLUMN;
          UNROLL for (int l = 0; l < LINES; ++l) send(column, mine.T[l][0], mine.z[l], lane % LANES + l * LANES, step);
        }
        SYNC;
        EACH_LANE {
          Sums& mine = sums[PLACE];
          const REAL* column = shared + lane / LANES * DESK + SIZE + step % 2 * COLUMN;
          const REAL z = column[DIM], inverse = inverse_of(column[0]);
          UNROLL for (int l = 0; l < LINES; ++l) {
            const bool pivot = lane % LANES + l * LANES == step;
            const REAL swept = mine.T[l][0] * inverse, f = pivot ? 1 - inverse : swept;
            subtract<DIM>(mine.T[l], column, f);
            mine.T[l][DIM - 1] = pivot ? -inverse : swept;
            mine.z[l] -= f * z;
          }
        }
      }
      SYNC;
      EACH_LANE {
        Sums& mine = sums[PLACE];
        REAL* desk = shared + lane / LANES * DESK + SIZE + 2 * COLUMN + DIM;
        UNROLL for (int l = 0; l < LINES; ++l) {
          mine.z[l] *= mine.scale[l];
          if (lane % LANES + l * LANES < DIM) desk[lane % LANES + l * LANES] = mine.z[l];
        }
      }
      SYNC;
      EACH_LANE {
        Sums& mine = sums[PLACE];
        REAL *scales = shared + lane / LANES * DESK + SIZE + 2 * COLUMN, *w = scales + DIM, *in_shared = w + DIM;
        if (mine.share != 0) UNROLL for (int l = 0; l < LINES; ++l) {
          const REAL of_w = mine.share * mine.z[l], of_T = mine.there[l] ? mine.share * mine.scale[l] : 0;
          mine.first[l] += of_w;
          UNROLL for (int c = 0; c < DIM; c += PER_QUAD) {
            REAL scale[PER_QUAD], other[PER_QUAD];
            load<PER_QUAD>(scale, scales + c);
            load<PER_QUAD>(other, w + c);
            REAL* at = in_shared + (c / PER_QUAD * LANES * LINES + lane % LANES + l * LANES) * PER_QUAD;
            Quad quad;
            UNROLL for (int e = 0; e < PER_QUAD; ++e) {
              const REAL more = of_w * other[e] + of_T * (scale[e] * mine.T[l][c + e]);
              if (KEPT) mine.kept[KEPT ? l * DIM + c + e : 0] += more;
              else quad.v[e] = at[e] + more;
            }
            if (!KEPT) *(Quad*)at = quad;
          }
        }
      }
      SYNC;
    }
    EACH_LANE {
      Sums& mine = sums[PLACE];
      const REAL* in_shared = shared + lane / LANES * DESK + SIZE + 2 * COLUMN + 2 * DIM;
      UNROLL for (int l = 0; l < LINES; ++l) {
        const int r = lane % LANES + l * LANES;
        REAL* at = out + (((task / k * PAIRS + lane / LANES) * k + j) * DIM + r) * COLUMN;
        if (r < DIM) {
          UNROLL for (int c = 0; c < DIM; ++c)
            at[c] = KEPT ? mine.kept[KEPT ? l * DIM + c : 0]
                         : in_shared[(c / PER_QUAD * LANES * LINES + r) * PER_QUAD + c % PER_QUAD];
          at[DIM] = mine.first[l];
        }
      }
    }
    SYNC;
  }
}
#endif
