// Light or dark as it was chosen on any page of the course, which remember it under these two names.
"use strict";

function remembered(theme = null) {
  try { // a browser may forbid it
    if (theme) for (const name of ["mode", "theme"]) localStorage.setItem(name, theme);
    return localStorage.getItem("theme");
  } catch {
    return null;
  }
}

if (["light", "dark"].includes(remembered())) shade(remembered());
find("theme").addEventListener("click", () => remembered(document.documentElement.getAttribute("data-theme")));
