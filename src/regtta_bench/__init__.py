"""The paper's experiments and further studies, built on regtta, which never imports this package."""
