// Pairs of a few more than ten dimensions in CUDA C: a lane has a row, whose triangle is in registers.
//
// Compiled for one kind of rows at a time: REAL, FULL (noise is packed triangles, else variances), MASKED (values may be
// missing), DIM (dimensions). Triangles are packed; V is (k, DIM (DIM + 1) / 2), m is (k, DIM).

constexpr int NUMBERS = DIM * (DIM + 1) / 2;
#define AT(a, b) ((a) * ((a) + 1) / 2 + (b))

// T = V + S of row i and x - m; which values are there comes back
INLINE unsigned load_pair(REAL* T, REAL* z, const REAL* V, const REAL* m, const Rows& rows, index_t i) {
  unsigned there = ~0u;
  UNROLL for (int a = 0; a < DIM; ++a) {
    z[a] = rows.x[a * rows.padded + i] - m[a];
    if (MASKED && rows.seen[a * rows.padded + i] == 0) {
      there &= ~(1u << a);
      z[a] = 0;
    }
  }
  UNROLL for (int a = 0; a < DIM; ++a)
    UNROLL for (int b = 0; b <= a; ++b) {
      REAL value = V[AT(a, b)];
      if (MASKED && !((there >> a) & (there >> b) & 1u)) value = 0;
      if (FULL) value += rows.S[AT(a, b) * rows.padded + i];
      else if (a == b) value += rows.S[a * rows.padded + i];
      T[AT(a, b)] = value;
    }
  return there;
}

// T becomes L with 1 / L_aa on its diagonal, z becomes L^-1 z; the log-density without its constants comes back
INLINE REAL factor(REAL* T, REAL* z) {
  REAL value = 0;
  UNROLL for (int a = 0; a < DIM; ++a) {
    UNROLL for (int r = a; r < DIM; ++r)
      UNROLL for (int c = 0; c < a; ++c) T[AT(r, a)] -= T[AT(r, c)] * T[AT(a, c)];
    UNROLL for (int c = 0; c < a; ++c) z[a] -= T[AT(a, c)] * z[c];
    const REAL inverse = inverse_root(T[AT(a, a)]);
    UNROLL for (int r = a + 1; r < DIM; ++r) T[AT(r, a)] *= inverse;
    T[AT(a, a)] = inverse;
    z[a] *= inverse;
    value += LOG(inverse) - (REAL)0.5 * z[a] * z[a];
  }
  return value;
}

// L becomes A = L^-1, from its last column to its first and from each column's end to its diagonal
INLINE void invert(REAL* L) {
  UNROLL for (int b = DIM - 2; b >= 0; --b)
    UNROLL for (int a = DIM - 1; a > b; --a) {
      REAL sum = 0;
      UNROLL for (int c = b + 1; c <= a; ++c) sum -= L[AT(a, c)] * L[AT(c, b)];
      L[AT(a, b)] = sum * L[AT(b, b)];
    }
}

// A becomes A^T A, line by line, and z becomes A^T z
INLINE void square(REAL* A, REAL* z) {
  UNROLL for (int b = 0; b < DIM; ++b) {
    z[b] *= A[AT(b, b)];
    UNROLL for (int a = b + 1; a < DIM; ++a) z[b] += A[AT(a, b)] * z[a];
  }
  UNROLL for (int a = 0; a < DIM; ++a)
    UNROLL for (int b = 0; b <= a; ++b) {
      A[AT(a, b)] *= A[AT(a, a)];
      UNROLL for (int c = a + 1; c < DIM; ++c) A[AT(a, b)] += A[AT(c, a)] * A[AT(c, b)];
    }
}

#ifdef JOINT
// log (alpha N) (k, padded), without the constants of rows
KERNEL joint(const REAL* log_weights, const REAL* means, const REAL* V, const REAL* x, const REAL* seen, const REAL* S,
             REAL* out, int k, index_t padded) {
  BLOCKS
  const Rows rows = {x, seen, S, padded};
  for (index_t task = block; task < padded / 32 * k; task += blocks) {
    const int j = task % k;
    EACH_LANE {
      const index_t i = task / k * 32 + lane;
      REAL T[NUMBERS], z[DIM];
      load_pair(T, z, V + (index_t)j * NUMBERS, means + j * DIM, rows, i);
      out[j * padded + i] = log_weights[j] + factor(T, z);
    }
  }
}
#endif

#ifdef MOMENTS
// g and the lower triangle of G (chunks, k, DIM + NUMBERS), each of a chunk of rows; lanes keep theirs in shared memory
KERNEL moments(const REAL* share, const REAL* means, const REAL* V, const REAL* x, const REAL* seen, const REAL* S,
               REAL* out, int k, index_t padded, int chunk) {
  SHARED(kept);
  BLOCKS
  const Rows rows = {x, seen, S, padded};
  const index_t chunks = (padded + chunk - 1) / chunk;
  for (index_t task = block; task < chunks * k; task += blocks) {
    const int j = task % k;
    const index_t begin = task / k * chunk, end = begin + chunk < padded ? begin + chunk : padded;
    PRIVATE(REAL, own, 1);
    EACH_LANE for (int c = 0; c < DIM + NUMBERS; ++c) kept[32 * c + lane] = 0;
    ONCE for (index_t start = begin; start < end; start += 32) {
      EACH_LANE MY(own)[0] = share[j * padded + start + lane];
      if (!ANY(own)) continue;
      EACH_LANE {
        const REAL r = MY(own)[0];
        REAL T[NUMBERS], z[DIM];
        const unsigned there = load_pair(T, z, V + (index_t)j * NUMBERS, means + j * DIM, rows, start + lane);
        factor(T, z);
        invert(T);
        if (MASKED)
          UNROLL for (int a = 0; a < DIM; ++a)
            if (!(there >> a & 1u)) T[AT(a, a)] = 0;
        square(T, z);
        if (r != 0) {
          UNROLL for (int a = 0; a < DIM; ++a) kept[32 * a + lane] += r * z[a];
          UNROLL for (int a = 0; a < DIM; ++a)
            UNROLL for (int b = 0; b <= a; ++b)
              kept[32 * (DIM + AT(a, b)) + lane] += r * (z[a] * z[b] - T[AT(a, b)]);
        }
      }
    }
    SYNC;
    EACH_LANE for (int c = lane; c < DIM + NUMBERS; c += 32) {
      REAL sum = 0;
      for (int l = 0; l < 32; ++l) sum += kept[32 * c + (l + lane) % 32];
      out[(task / k * k + j) * (DIM + NUMBERS) + c] = sum;
    }
    SYNC;
  }
}
#endif
