"""What telescopes do to catalogues, put right."""
