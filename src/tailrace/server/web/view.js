// Read before anything is drawn: an address of another view shows no empty conversation while that view is loaded.

if (/^\/docs|[?&](run|runs|ops|usage|instance)\b/.test(location.pathname + location.search)) document.body.dataset.view = "opening";

const theme = localStorage.getItem("tailrace.theme");
if (theme) document.documentElement.dataset.theme = theme;
