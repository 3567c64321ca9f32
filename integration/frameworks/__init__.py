"""Other people's training frameworks around compiled modules, each with the losses and weights of eager."""
