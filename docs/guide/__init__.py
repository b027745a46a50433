"""What builds the guide: code on its pages runs, its formulas become MathML, its links are followed."""
