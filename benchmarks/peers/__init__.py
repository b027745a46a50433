"""privkde beside what a user might pick instead: shuffle bounds, accountants, estimators of auditors.

python -m benchmarks.peers                      measure and print
python -m benchmarks.peers --output FILE.json   also every number, unrounded, with what it came from
python -m benchmarks.peers --tiny               small sizes and few trials: does it work at all?

`make bench-peers` makes an environment with the peers and runs it; docs/results/peers.md prints its tables from
docs/results/peers.json.
"""
