//! Plain twins of every operator: scalar, in f64 where sums are long, for tests.
