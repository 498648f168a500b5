"""The experiment of Ritchie & Murray (2019), its saved runs, and its report."""
