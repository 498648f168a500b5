"""Constants that velocities of stars are made with, in catalogues and in simulations alike."""

KM_S = 4.740470463  # km/s for 1 mas/yr at a parallax of 1 mas, or a distance of 1 kpc
ICRS_TO_GALACTIC = (
    (-0.0548755604, -0.8734370902, -0.4838350155),  # towards the Galactic centre
    (+0.4941094279, -0.4448296300, +0.7469822445),  # towards Galactic rotation
    (-0.8676661490, -0.1980763734, +0.4559837762),  # towards the north Galactic pole
)  # ESA (1997), The Hipparcos Catalogue, volume 1, 1.5.3
