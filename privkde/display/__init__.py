"""Tables, figures and progress for people."""
