"""The paper's experiments on labeled vectors in a file: accuracy, communication, error of a density, class decoding.

    settings -> data -> calibration -> unit -> sums -> simulation -> measuring -> running -> results
                                                                  -> tables, figures, writing

Runs are seeded studies of accuracy. They protect nobody, and what they write must not be published about real users.
"""
