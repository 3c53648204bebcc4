"""From verdicts to ratings: comparisons, Elo, Bradley-Terry, and how good they are."""
