"""Features of candidates: the input of a cost model, known before measuring."""

from .function import FeatureFunction, StructuralFeatures, features_of, prior
from .kernel import FEATURES
from .skeleton import Column

__all__ = ["FEATURES", "Column", "FeatureFunction", "StructuralFeatures", "features_of", "prior"]
