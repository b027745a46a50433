"""Who reads and writes: vectors in blocks of users, packets and documents, in files."""
