"""What a trained model is, and what each of its heads does."""
