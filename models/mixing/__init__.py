"""Weight arithmetic: captioners that are sums of others. Loads no torch by itself.

theta = theta_0 + sum_i a_i (theta_i - theta_0): a base, named directions to models fine-tuned from it, coefficients.
"""
