"""State–Goal–Action planning (SGA-MCTS): atoms of experience, distilled offline and retrieved as soft hints."""
