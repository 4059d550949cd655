// What the theme leaves out for readers who hear the page or use the keyboard alone.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const sidebar = document.querySelector(".bd-sidebar-primary");
  sidebar?.setAttribute("role", "complementary");
  sidebar?.setAttribute("aria-label", "Pages of the site");
  for (const button of document.querySelectorAll(".search-button-field")) button.removeAttribute("aria-label"); // it has a text
  for (const button of document.querySelectorAll(".secondary-toggle")) {
    for (const name of ["aria-label", button.title ? "title" : "data-bs-original-title"]) button.setAttribute(name, "Contents of this page");
    button.insertAdjacentHTML("beforeend", '<span class="words">Contents</span>');
  }
  for (const summary of document.querySelectorAll("nav summary")) {
    const link = summary.parentElement.parentElement.querySelector("a");
    summary.setAttribute("aria-label", `Pages below ${link ? link.textContent.trim() : "this one"}`);
  }
  for (const head of document.querySelectorAll(".bd-article th")) { // an empty corner of a table is no heading
    if (!head.textContent.trim() && !head.firstElementChild?.firstElementChild) head.outerHTML = "<td></td>";
  }
  const wide = document.querySelectorAll(".bd-article table, .bd-article p:has(> img.wide), .bd-article div.math");
  for (const part of wide) if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
});
