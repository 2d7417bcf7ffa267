// Starts the page: what is served here, the tabs, and the strip at the foot.

import { getJson } from "./api.js";
import { CaptionTab } from "./caption_tab.js";
import { CompareTab } from "./compare_tab.js";
import { byId } from "./dom.js";
import { ExperimentsTab, listExperiments } from "./experiments_tab.js";
import { clearTrouble, showTrouble } from "./explain.js";
import { startHealth } from "./health.js";
import { acceptKey } from "./key.js";
import { Pictures, acceptDropsAndPastes } from "./picture.js";
import { startTabs } from "./tabs.js";
import { Votes } from "./votes.js";

const pictures = new Pictures(Number(document.querySelector('meta[name="max-image-bytes"]').content));
const votes = new Votes();
const captionTab = new CaptionTab(pictures, votes);
const compareTab = new CompareTab(pictures, votes);
const experimentsTab = new ExperimentsTab();

acceptDropsAndPastes(pictures);
startTabs(byId("tabs"), (name) => {
  if (name === "experiments") experimentsTab.load();
});
startHealth();
acceptKey(byId("key-form"), load);
load();

async function load() {
  try {
    const [models, experiments] = await Promise.all([getJson("v1/models"), listExperiments().catch(() => [])]);
    clearTrouble(byId("page-trouble"));
    captionTab.setExperiments(experiments);
    compareTab.setExperiments(experiments);
    captionTab.setModels(models.data);
    compareTab.setModels(models.data);
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    showTrouble(byId("page-trouble"), error, load);
  }
}
