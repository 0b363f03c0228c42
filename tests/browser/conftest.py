"""The pages that are opened are made once, by the fixtures of the page's own tests."""

from tests.page.conftest import gpu_folder, gpu_notebook, gpu_page, hostile_notebook, hostile_page

__all__ = ["gpu_folder", "gpu_notebook", "gpu_page", "hostile_notebook", "hostile_page"]
