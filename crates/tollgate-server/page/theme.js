// Light or dark, before the first paint: a script of its own that runs while the head is read.
// What to show is in `data-theme`; without it the system's wish holds.
(() => {
  const KEPT = "tollgate-theme";
  const THEMES = ["auto", "light", "dark"];
  const root = document.documentElement;
  const now = () => root.dataset.theme ?? "auto";
  const show = (theme) => {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  try {
    show(localStorage.getItem(KEPT));
  } catch {
    // Storage may be forbidden; the system's wish then holds.
  }

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const say = () => {
      button.textContent = `Theme: ${now()}`;
    };
    button.addEventListener("click", () => {
      show(THEMES[(THEMES.indexOf(now()) + 1) % THEMES.length]);
      say();
      try {
        localStorage.setItem(KEPT, now());
      } catch {
        // Then it holds until the page is closed.
      }
    });
    say();
  });
})();
