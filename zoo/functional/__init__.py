"""Functions the attentions and models are made of."""
