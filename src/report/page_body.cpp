// What stands on report.html; the script fills it.
#include "report/page.hpp"

namespace tulle::page {

const std::string_view kBody = R"html(<main>
<header>
  <span class="brand"><i aria-hidden="true"><b class="on"></b><b></b><b></b><b></b><b class="on"></b><b class="on"></b><b></b><b></b><b></b><b class="on"></b><b class="on"></b><b></b><b class="on"></b><b></b><b class="on"></b><b class="on"></b></i>Tulle</span>
  <span class="where" id="where"></span>
  <h1 id="prompt"></h1>
</header>
<section class="tiles" id="tiles" aria-label="Summary"></section>
<section id="clips">
  <div class="screens" id="screens"></div>
  <div class="player">
    <button id="play" type="button">Pause</button>
    <input id="seek" type="range" min="0" max="1000" value="0" aria-label="Position in the clip">
  </div>
  <img class="sheet" id="sheet" alt="Frames of each clip, one clip a row">
</section>
<section>
  <h2>Where the time goes</h2>
  <p class="hint" id="time-hint"></p>
  <div class="bars" id="bars"></div>
  <div class="legend" id="bar-legend"></div>
</section>
<div class="pair">
  <section id="heat-section">
    <h2>Density per layer and head</h2>
    <p class="hint">Kept share of all query and key token pairs, over all steps. The last column is the layer's mean.</p>
    <div class="heat" id="heat"></div>
    <div class="scale"><span>0</span><i id="ramp"></i><span>1 (dense)</span></div>
  </section>
  <section id="step-section">
    <h2>Density by step</h2>
    <p class="hint">Mean over layers, heads and guidance branches.</p>
    <svg id="steps" viewBox="0 0 520 300" role="img" aria-label="Density by step"></svg>
  </section>
</div>
<section id="mask-section">
  <h2>Block masks</h2>
  <p class="hint">One picture a head: a row is a block of queries, a column a block of keys, both in memory order. Coloured blocks are computed.<span id="rank-hint" hidden> Beside it the rank map of the profile: the stronger the colour of a block, the smaller the density at which it is kept.</span><span id="left-out" hidden></span></p>
  <div class="masks short" id="masks"></div>
  <div class="scale" id="rank-scale" hidden><span>kept first</span><i id="rank-ramp"></i><span>kept last</span></div>
  <button class="more" id="more" type="button">Show all</button>
</section>
<section id="view-section">
  <h2>One query block in the video</h2>
  <p class="hint">All frames of the grid. Outlined: the tokens of the query block. Coloured: the tokens that it attends to. Click a row of a picture above to choose head and query block.</p>
  <div class="player">
    <select id="view-head" aria-label="Layer and head"></select>
    <input id="view-query" type="range" min="0" aria-label="Query block">
    <span id="view-name"></span>
  </div>
  <div id="view"></div>
</section>
<section id="time-section">
  <h2>Timeline</h2>
  <p class="hint">Seconds since the run began. Within a step the phases are added up and laid end to end; their order inside it is not shown.</p>
  <svg id="timeline" role="img" aria-label="Timeline per rank"></svg>
  <div class="legend" id="time-legend"></div>
</section>
<section id="edge-section">
  <h2>Bytes between ranks</h2>
  <p class="hint">A row sends, a column receives.</p>
  <div class="scroll"><table id="edges"></table></div>
</section>
<section id="route-section">
  <h2>Routes</h2>
  <p class="hint">Which kernel or path ran, and why.</p>
  <div class="scroll"><table id="routes"></table></div>
</section>
<section>
  <h2>Run and machine</h2>
  <dl id="facts"></dl>
  <details><summary>report.json</summary><pre id="raw"></pre></details>
</section>
<footer id="foot"></footer>
</main>
)html";

}  // namespace tulle::page
