// Before anything is painted: the theme that was chosen in this browser, else the system's.
(() => {
  "use strict";
  try {
    const chosen = localStorage.getItem("oncewire-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch { /* a browser that keeps nothing follows the system */ }
})();
