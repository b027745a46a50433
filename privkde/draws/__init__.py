"""Where randomness comes from: random bytes, and exact draws from them."""
