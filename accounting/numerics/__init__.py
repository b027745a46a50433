"""Masses, profiles, losses and root finding: numbers that the theorems need, each rounded to the safe side.

Everywhere in `accounting`, parts of SciPy are written out, such as `scipy.signal.lfilter`: SciPy loads them when they
are first used, so that `import accounting` takes little longer than `import numpy`.
"""
