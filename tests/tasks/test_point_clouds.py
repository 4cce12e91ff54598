"""Points in space: integer coordinates, labels that follow the shape, and examples in the order asked for."""

import numpy as np
import pytest
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from maskwise.tasks.point_clouds import LABELS, ORDERS, SHAPES, arranged, circles, draw_cloud, moons, swiss_roll


@pytest.mark.parametrize("shape", SHAPES)
def test_a_cloud_is_integers_of_1_to_100_with_labels_its_places_tell(shape):
    cloud = draw_cloud(shape, 300, 300, seed=1)
    every = np.concatenate([cloud.examples, cloud.tests])
    assert every.dtype == np.int64 and every.shape == (600, 3)
    assert (every.min(0) == 1).all() and (every.max(0) == 100).all()
    assert cloud.test_labels.mean() == cloud.example_labels.mean() == 0.5
    assert 0.3 < cloud.example_labels[:100].mean() < 0.7  # in random order
    axes = slice(0, 3 if shape in ("nonlinear", "swiss-roll") else 2)
    near = KNeighborsClassifier(5).fit(cloud.examples[:, axes], cloud.example_labels)
    assert near.score(cloud.tests[:, axes], cloud.test_labels) > 0.85
    again, other = draw_cloud(shape, 300, 300, seed=1), draw_cloud(shape, 300, 300, seed=2)
    assert np.array_equal(again.tests, cloud.tests) and not np.array_equal(other.tests, cloud.tests)


@pytest.mark.parametrize("count", [2, 7, 100])
@pytest.mark.parametrize("seed", [0, 12345])
def test_the_shapes_are_scikit_learns_number_for_number(count, seed):
    pairs = [
        (
            swiss_roll(count, 0.5, np.random.RandomState(seed)),
            datasets.make_swiss_roll(count, noise=0.5, random_state=seed),
        ),
        (moons(count, 0.1, np.random.RandomState(seed)), datasets.make_moons(count, noise=0.1, random_state=seed)),
        (
            circles(count, 0.05, 0.5, np.random.RandomState(seed)),
            datasets.make_circles(count, noise=0.05, factor=0.5, random_state=seed),
        ),
    ]
    for found, wanted in pairs:
        assert all(np.array_equal(one, other) for one, other in zip(found, wanted, strict=True))


@pytest.mark.parametrize("noise_free", [moons, lambda *given: circles(given[0], given[1], 0.5, given[2])])
def test_without_noise_places_lie_on_their_curves(noise_free):
    places, labels = noise_free(40, 0.0, np.random.RandomState(0))
    centres, radii = (([0, 0], [1, 0.5]), (1, 1)) if noise_free is moons else (([0, 0], [0, 0]), (1, 0.5))
    distance = np.linalg.norm(places - np.array(centres)[labels], axis=1)
    np.testing.assert_allclose(distance, np.array(radii)[labels], atol=1e-12)


@pytest.mark.parametrize("shape", ["moons", "circles"])
def test_the_third_axis_of_flat_shapes_says_nothing(shape):
    cloud = draw_cloud(shape, 2000, 1, seed=0)
    means = [cloud.examples[cloud.example_labels == label, 2].mean() for label in (0, 1)]
    assert abs(means[0] - means[1]) < 5


def test_a_nonlinear_cloud_is_a_polynomial_of_the_second_degree():
    cloud = draw_cloud("nonlinear", 300, 600, seed=3)
    u = 2 * (np.concatenate([cloud.examples, cloud.tests]) - 1) / 99 - 1
    labels = np.concatenate([cloud.example_labels, cloud.test_labels])
    first, second = np.triu_indices(3)
    squares = np.column_stack([u, u[:, first] * u[:, second]])
    fitted = [LogisticRegression(C=1e4, max_iter=2000).fit(x, labels).score(x, labels) for x in (u, squares)]
    assert fitted[1] > 0.98 > fitted[0]


def test_orders_by_distance_from_the_test_point():
    cloud = draw_cloud("moons", 20, 3, seed=0)
    for test in range(3):
        as_drawn, first, last = (arranged(cloud, test, order) for order in ORDERS)
        assert sorted(as_drawn, key=str) == sorted(first, key=str) == sorted(last, key=str)

        def distances(exercises, test=test):
            places = [[int(n) for n in e.asked.removeprefix("Point: ").split(" ")] for e in exercises]
            return [((np.array(place) - cloud.tests[test]) ** 2).sum() for place in places]

        assert distances(first) == sorted(distances(as_drawn))
        assert distances(last) == sorted(distances(as_drawn), reverse=True) != distances(as_drawn)
    x, y, z = cloud.examples[0]
    assert as_drawn[0].asked == f"Point: {x} {y} {z}" and as_drawn[0].label == LABELS[cloud.example_labels[0]]
    assert len(arranged(cloud, 0, "nearest last", 5)) == 5
