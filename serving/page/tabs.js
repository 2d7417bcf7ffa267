// Tabs by the ARIA pattern: one of them in the tab order, arrows move between them; the address remembers which.

/** Calls back with the name of the tab whenever one is shown. */
export function startTabs(list, shown) {
  const tabs = [...list.querySelectorAll('[role="tab"]')];
  const panelOf = (tab) => document.getElementById(tab.getAttribute("aria-controls"));

  function show(chosen) {
    for (const tab of tabs) {
      tab.setAttribute("aria-selected", String(tab === chosen));
      tab.tabIndex = tab === chosen ? 0 : -1;
      panelOf(tab).hidden = tab !== chosen;
    }
    shown(chosen.dataset.tab);
  }

  function choose(tab) {
    history.replaceState(null, "", `#${tab.dataset.tab}`);
    show(tab);
  }

  list.addEventListener("click", (event) => {
    const tab = event.target.closest('[role="tab"]');
    if (tab) choose(tab);
  });
  list.addEventListener("keydown", (event) => {
    const at = tabs.indexOf(document.activeElement);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (at < 0 || next === undefined) return;
    event.preventDefault();
    const tab = tabs[(next + tabs.length) % tabs.length];
    tab.focus();
    choose(tab);
  });
  const fromAddress = () => show(tabs.find((tab) => `#${tab.dataset.tab}` === location.hash) ?? tabs[0]);
  addEventListener("hashchange", fromAddress);
  fromAddress();
}
