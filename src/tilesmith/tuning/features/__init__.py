"""Features of candidates: what a cost model knows of a schedule before it is measured."""

from .function import FeatureFunction, StructuralFeatures, features_of, prior
from .kernel import FEATURES
from .skeleton import Column

__all__ = ["FEATURES", "Column", "FeatureFunction", "StructuralFeatures", "features_of", "prior"]
