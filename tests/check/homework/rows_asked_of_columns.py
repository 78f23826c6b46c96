import numpy as np

rng = np.random.default_rng(74)
days = rng.gamma(2.0, size=(9, 4))
days = (days - days.mean()) / days.std()
asked = np.stack([days[-1], days[2]])
known, answers = days[:6], rng.normal(size=(6, 1))
fits = known @ asked.T / np.sqrt(4)
share = np.exp(fits - fits.max(axis=0))
share = share / share.sum(axis=0)
print((share.T @ answers).round(5))
