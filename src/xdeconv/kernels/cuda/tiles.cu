// Pairs of many dimensions in CUDA C: a few lanes of a warp share a pair, whose triangle lies in shared memory in tiles of
// 4 x 4 that pass through registers.
//
// A pair is factored, T = L L^T, in place of T, block column by block column; then L^-1 takes the place of L, from its
// last block column to its first; then lanes add w w^T - L^-T L^-1 to the tiles of G that they keep, over all rows of a chunk.
// Diagonals of L hold 1 / L_aa. A pivot that is not above zero is NaN, and so is all that comes after it.
//
// Compiled for one kind of rows at a time: REAL, FULL (noise is packed triangles, else variances), MASKED (values may be
// missing), LANES (of a pair), KEPT (tiles of G that a lane keeps in registers; 0: in memory). Dimensions are known at run time.
// V is (k, tiles, 16), m is (k, 4 nb).

constexpr int STEP = 16 + PER_QUAD;  // of a tile: the odd number of 16 bytes keeps lanes on different banks
constexpr int PAIRS = 32 / LANES;    // of a warp

INLINE int triangle(int I) { return I * (I + 1) / 2; }
INLINE REAL* tile(REAL* T, int I, int J) { return T + (triangle(I) + J) * STEP; }

// out - left right^T
INLINE void less_by_transposed(REAL* out, const REAL* left, const REAL* right) {
  REAL a[16], b[16];
  load<16>(a, left);
  load<16>(b, right);
  UNROLL for (int r = 0; r < 4; ++r)
    UNROLL for (int s = 0; s < 4; ++s)
      UNROLL for (int c = 0; c < 4; ++c) out[4 * r + s] -= a[4 * r + c] * b[4 * s + c];
}

// out + left right
INLINE void more_by(REAL* out, const REAL* left, const REAL* right) {
  REAL a[16], b[16];
  load<16>(a, left);
  load<16>(b, right);
  UNROLL for (int r = 0; r < 4; ++r)
    UNROLL for (int s = 0; s < 4; ++s)
      UNROLL for (int c = 0; c < 4; ++c) out[4 * r + s] += a[4 * r + c] * b[4 * c + s];
}

// out - left^T right
INLINE void less_transposed_by(REAL* out, const REAL* left, const REAL* right) {
  REAL a[16], b[16];
  load<16>(a, left);
  load<16>(b, right);
  UNROLL for (int c = 0; c < 4; ++c)
    UNROLL for (int r = 0; r < 4; ++r)
      UNROLL for (int s = 0; s < 4; ++s) out[4 * r + s] -= a[4 * c + r] * b[4 * c + s];
}

// A tile of T = V + S of row i; a missing value's line is that of the identity, which S holds already
INLINE void load_covariance(REAL* out, const REAL* V, const Rows& rows, index_t i, int I, int J) {
  load<16>(out, V + (triangle(I) + J) * 16);
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
    const REAL inverse = inverse_root(pivot);
    logarithm += LOG(inverse);
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

// T of row i in tiles and x - m, by the lane that is ``own`` of a pair's
INLINE void load_pair(REAL* T, REAL* z, const REAL* V, const REAL* m, const Rows& rows, index_t i, int nb, int own) {
  int I = 0, J = own;
  while (J > I) J -= ++I;
  TWICE for (; I < nb;) {
    REAL C[16];
    load_covariance(C, V, rows, i, I, J);
    store<16>(tile(T, I, J), C);
    J += LANES;
    while (J > I) J -= ++I;
  }
  for (int a = own; a < 4 * nb; a += LANES) {
    REAL value = rows.x[a * rows.padded + i] - m[a];
    if (MASKED) value *= rows.seen[a * rows.padded + i];
    z[a] = value;
  }
}

// One block column of L below its diagonal; what it takes of the diagonals and of x - m below is taken at once.
// D becomes the factor on the diagonal, part the block's values of z; the log-density has more by what comes back.
INLINE REAL factor_column(REAL* T, REAL* z, REAL* D, REAL* part, int nb, int J, int own) {
  load<16>(D, tile(T, J, J));
  load<4>(part, z + 4 * J);
  REAL more = factor_tile(D);
  UNROLL for (int r = 0; r < 4; ++r) {
    UNROLL for (int c = 0; c < r; ++c) part[r] -= D[4 * r + c] * part[c];
    part[r] *= D[5 * r];
    more -= (REAL)0.5 * part[r] * part[r];
  }
  ONCE for (int I = J + 1 + own; I < nb; I += LANES) {
    REAL C[16], E[16], y[4];
    load<16>(C, tile(T, I, J));
    ONCE for (int K = 0; K < J; ++K) less_by_transposed(C, tile(T, I, K), tile(T, J, K));
    divide_by_transposed(C, D);
    store<16>(tile(T, I, J), C);
    load<16>(E, tile(T, I, I));
    load<4>(y, z + 4 * I);
    UNROLL for (int r = 0; r < 4; ++r)
      UNROLL for (int c = 0; c < 4; ++c) {
        y[r] -= C[4 * r + c] * part[c];
        UNROLL for (int s = 0; s <= r; ++s) E[4 * r + s] -= C[4 * r + c] * C[4 * s + c];
      }
    store<16>(tile(T, I, I), E);
    store<4>(z + 4 * I, y);
  }
  return more;
}

// The inverse of a tile on the diagonal; zero where a value is missing, which nothing is learnt of
INLINE void invert_tile(REAL* at, const Rows& rows, index_t i, int J) {
  REAL D[16], A[16];
  load<16>(D, at);
  UNROLL for (int s = 0; s < 4; ++s)
    UNROLL for (int r = 0; r < 4; ++r) {
      REAL value = r == s ? 1 : 0;
      UNROLL for (int c = s; c < r; ++c) value -= D[4 * r + c] * A[4 * c + s];
      A[4 * r + s] = r < s ? 0 : value * D[5 * r];
    }
  if (MASKED)
    UNROLL for (int r = 0; r < 4; ++r) A[5 * r] *= rows.seen[(4 * J + r) * rows.padded + i];
  store<16>(at, A);
}

// A tile of the inverse below the diagonal, - (sum over K of A_IK L_KJ) A_JJ, while column J still holds L
INLINE void inverse_below(REAL* out, REAL* T, int I, int J) {
  REAL sum[16], D[16];
  UNROLL for (int c = 0; c < 16; ++c) sum[c] = 0;
  ONCE for (int K = J + 1; K <= I; ++K) more_by(sum, tile(T, I, K), tile(T, K, J));
  load<16>(D, tile(T, J, J));
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
    load<16>(a, tile(T, K, I));
    load<4>(b, z + 4 * K);
    UNROLL for (int c = 0; c < 4; ++c)
      UNROLL for (int r = 0; r < 4; ++r) out[r] += a[4 * c + r] * b[c];
  }
}

// A tile of r (w w^T - A^T A) added to what there is
INLINE void add_spread(REAL* out, REAL* A, const REAL* w, REAL r, int nb, int I, int J) {
  REAL sum[16], a[4], b[4];
  load<4>(a, w + 4 * I);
  load<4>(b, w + 4 * J);
  UNROLL for (int e = 0; e < 4; ++e)
    UNROLL for (int f = 0; f < 4; ++f) sum[4 * e + f] = a[e] * b[f];
  ONCE for (int K = nb - 1; K >= I; --K) less_transposed_by(sum, tile(A, K, I), tile(A, K, J));
  UNROLL for (int c = 0; c < 16; ++c) out[c] += r * sum[c];
}

// The same of the pairs first, first + step, ...: all their products in one loop, so that lanes of long and of short sums
// keep each other company
INLINE void add_spreads(REAL* out, REAL* shared, int numbers, int tiles, int nb, int I, int J, int first, int step) {
  ONCE for (int pair = first; pair < PAIRS; pair += step) {
    const REAL *w = shared + pair * numbers + tiles * STEP + 4 * nb, r = w[4 * nb];
    if (r == 0) continue;
    REAL a[4], b[4];
    load<4>(a, w + 4 * I);
    load<4>(b, w + 4 * J);
    UNROLL for (int e = 0; e < 4; ++e)
      UNROLL for (int f = 0; f < 4; ++f) out[4 * e + f] += r * a[e] * b[f];
  }
  int pair = first, K = nb - 1;
  ONCE while (pair < PAIRS) {
    REAL* A = shared + pair * numbers;
    const REAL r = A[tiles * STEP + 8 * nb];
    if (r != 0) {
      REAL a[16], b[16];
      load<16>(a, tile(A, K, I));
      load<16>(b, tile(A, K, J));
      UNROLL for (int c = 0; c < 16; ++c) a[c] *= -r;
      UNROLL for (int c = 0; c < 4; ++c)
        UNROLL for (int e = 0; e < 4; ++e)
          UNROLL for (int f = 0; f < 4; ++f) out[4 * e + f] += a[4 * c + e] * b[4 * c + f];
    }
    const bool done = r == 0 || K == I;
    pair += done ? step : 0;
    K = done ? nb - 1 : K - 1;
  }
}

INLINE int row_of_tile(int t) {
  int I = 0;
  while (triangle(I + 1) <= t) ++I;
  return I;
}

// Numbers of shared memory that a pair takes: tiles, z, w, its share, and what keeps pairs on different banks
INLINE int numbers_of(int nb) {
  const int quads = (triangle(nb) * STEP + 8 * nb + PER_QUAD) / PER_QUAD;
  return (quads | 1) * PER_QUAD;
}

#ifdef JOINT
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
    EACH_LANE {
      REAL* T = shared + lane / LANES * numbers;
      load_pair(T, T + tiles * STEP, V + (index_t)j * tiles * 16, means + j * 4 * nb, rows, first + lane / LANES, nb,
                lane % LANES);
      MY(value)[0] = log_weights[j];
    }
    SYNC;
    ONCE for (int J = 0; J < nb; ++J) {
      EACH_LANE {
        REAL D[16], part[4], *T = shared + lane / LANES * numbers;
        MY(value)[0] += factor_column(T, T + tiles * STEP, D, part, nb, J, lane % LANES);
      }
      SYNC;
    }
    EACH_LANE if (lane % LANES == 0) out[j * padded + first + lane / LANES] = MY(value)[0];
  }
}
#endif

#ifdef MOMENTS
// g (chunks, k, 4 nb), and G in the tiles that lanes keep (chunks, k, 32 KEPT, 16): slots (32 KEPT, 3) tell which tile, of which
// pairs; or in all tiles (chunks, k, tiles, 16)
KERNEL moments(const REAL* share, const REAL* means, const REAL* V, const REAL* x, const REAL* seen, const REAL* S,
               REAL* out_g, REAL* out_G, const int* slots, int k, index_t padded, int nb, int chunk) {
  SHARED(shared);
  BLOCKS
  const Rows rows = {x, seen, S, padded};
  const int numbers = numbers_of(nb), tiles = triangle(nb);
  const index_t chunks = (padded + chunk - 1) / chunk;
  for (index_t task = block; task < chunks * k; task += blocks) {
    const int j = task % k;
    const index_t begin = task / k * chunk, end = begin + chunk < padded ? begin + chunk : padded;
    PRIVATE(REAL, kept, KEPT * 16);
    PRIVATE(REAL, first, 4);
    PRIVATE(REAL, own, 1);
    PRIVATE(REAL, waiting, 20);
    REAL* in_memory = out_G + (task / k * k + j) * tiles * 16;
    EACH_LANE {
      UNROLL for (int c = 0; c < KEPT * 16; ++c) MY(kept)[c] = 0;
      UNROLL for (int c = 0; c < 4; ++c) MY(first)[c] = 0;
      if (KEPT == 0)
        for (int c = 16 * lane; c < 16 * tiles; c += 16 * 32)
          for (int e = 0; e < 16; ++e) in_memory[c + e] = 0;
    }
    ONCE for (index_t start = begin; start < end; start += PAIRS) {
      EACH_LANE MY(own)[0] = share[j * padded + start + lane / LANES];
      if (!ANY(own)) continue;
      EACH_LANE {
        REAL *T = shared + lane / LANES * numbers, *z = T + tiles * STEP;
        load_pair(T, z, V + (index_t)j * tiles * 16, means + j * 4 * nb, rows, start + lane / LANES, nb, lane % LANES);
        z[8 * nb] = MY(own)[0];
      }
      SYNC;
      ONCE for (int J = 0; J < nb; ++J) {
        EACH_LANE {
          REAL *T = shared + lane / LANES * numbers, *mine = MY(waiting);
          factor_column(T, T + tiles * STEP, mine, mine + 16, nb, J, lane % LANES);
        }
        SYNC;
        EACH_LANE if (lane % LANES == 0) {
          REAL *T = shared + lane / LANES * numbers, *mine = MY(waiting);
          store<16>(tile(T, J, J), mine);
          store<4>(T + tiles * STEP + 4 * J, mine + 16);
        }
      }
      SYNC;
      EACH_LANE for (int J = lane % LANES; J < nb; J += LANES)
        invert_tile(tile(shared + lane / LANES * numbers, J, J), rows, start + lane / LANES, J);
      SYNC;
      ONCE for (int J = nb - 2; J >= 0; --J)
        ONCE for (int last = nb - 1; last > J; last -= LANES) {
          EACH_LANE if (last - lane % LANES > J)
            inverse_below(MY(waiting), shared + lane / LANES * numbers, last - lane % LANES, J);
          SYNC;
          EACH_LANE if (last - lane % LANES > J)
            store<16>(tile(shared + lane / LANES * numbers, last - lane % LANES, J), MY(waiting));
          SYNC;
        }
      EACH_LANE for (int I = lane % LANES; I < nb; I += LANES) {
        REAL w[4], *T = shared + lane / LANES * numbers, *z = T + tiles * STEP;
        pull_back(w, T, z, nb, I);
        store<4>(z + 4 * nb + 4 * I, w);
      }
      SYNC;
      EACH_LANE {
        ONCE for (int pair = 0; pair < PAIRS; ++pair) {
          REAL *A = shared + pair * numbers, *w = A + tiles * STEP + 4 * nb;
          const REAL r = w[4 * nb];
          if (r == 0) continue;
          UNROLL for (int c = 0; c < 4; ++c)
            if (lane + 32 * c < 4 * nb) MY(first)[c] += r * w[lane + 32 * c];
          if (KEPT == 0)
            for (int t = lane; t < tiles; t += 32) {
              const int I = row_of_tile(t);
              add_spread(in_memory + 16 * t, A, w, r, nb, I, t - triangle(I));
            }
        }
        UNROLL for (int e = 0; e < KEPT; ++e) {
          const int *slot = slots + 3 * (32 * e + lane), t = slot[0], I = row_of_tile(t);
          add_spreads(MY(kept) + 16 * e, shared, numbers, tiles, nb, I, t - triangle(I), slot[1], slot[2]);
        }
      }
      SYNC;
    }
    EACH_LANE {
      UNROLL for (int c = 0; c < 4; ++c)
        if (lane + 32 * c < 4 * nb) out_g[(task / k * k + j) * 4 * nb + lane + 32 * c] = MY(first)[c];
      UNROLL for (int e = 0; e < KEPT; ++e) {
        REAL* at = out_G + ((task / k * k + j) * KEPT * 32 + 32 * e + lane) * 16;
        UNROLL for (int c = 0; c < 16; ++c) at[c] = MY(kept)[16 * e + c];
      }
    }
  }
}
#endif
