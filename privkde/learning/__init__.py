"""Who learns from a collection: estimators, decoding of classes, and what they are compared with."""
