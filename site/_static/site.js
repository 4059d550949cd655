// What the theme leaves out for readers who hear the page or use the keyboard alone.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const sidebar = document.querySelector(".bd-sidebar-primary");
  sidebar?.setAttribute("role", "complementary");
  sidebar?.setAttribute("aria-label", "Pages of the site");
  for (const button of document.querySelectorAll(".search-button-field")) button.removeAttribute("aria-label"); // it has a text
  for (const summary of document.querySelectorAll("nav summary")) {
    const link = summary.parentElement.parentElement.querySelector("a");
    summary.setAttribute("aria-label", `Pages below ${link ? link.textContent.trim() : "this one"}`);
  }
  for (const table of document.querySelectorAll(".bd-article table")) if (table.scrollWidth > table.clientWidth) table.tabIndex = 0;
});
