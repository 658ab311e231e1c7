import torch

# The models here are tiny: a second thread costs more to wake than it computes.
torch.set_num_threads(1)
