// The picture that follows the light: I = colour · intensity · (max(m·ℓ, 0) + ambient·|m|) at each pixel, m = a·n.
// Drawn by WebGL2 where there is one, else by a plain loop; only when something has changed, once a frame.
// The report carries its surface; the studio makes a relighter, and loads one surface after the other into it.
"use strict";
function relighter(given) {
  const $ = (id) => document.getElementById(id);
  let surface, width, height, normals, colour;

  function take(next) {
    surface = next;
    ({ width, height } = next);
    [normals, colour] = [next.normals, next.colour].map((each) => (typeof each === "string" ? floats(each) : each));
  }

  function floats(base64) {
    const text = atob(base64), bytes = new Uint8Array(text.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
    return new Float32Array(bytes.buffer);
  }
  take(given);

  // Two painters. Each returns null where it cannot work, else {mode, load(), draw(state), pixels() -> RGBA, top row first}.

  const VERTEX = `#version 300 es
    void main() { gl_Position = vec4(gl_VertexID == 1 ? 3 : -1, gl_VertexID == 2 ? 3 : -1, 0, 1); }`;
  const FRAGMENT = `#version 300 es
    precision highp float;
    uniform highp sampler2D normals, colour;
    uniform vec3 light, tint;
    uniform float ambient, intensity;
    uniform bool srgb;
    out vec4 result;
    void main() {
      ivec2 at = ivec2(gl_FragCoord.x, float(textureSize(normals, 0).y) - gl_FragCoord.y);
      vec3 m = texelFetch(normals, at, 0).xyz;
      vec3 k = texelFetch(colour, at % textureSize(colour, 0), 0).rgb;  // of one pixel where all is grey
      vec3 v = clamp(k * tint * intensity * (max(dot(m, light), 0.0) + ambient * length(m)), 0.0, 1.0);
      vec3 encoded = mix(1.055 * pow(v, vec3(1.0 / 2.4)) - 0.055, v * 12.92, lessThanEqual(v, vec3(0.0031308)));
      result = vec4(srgb ? encoded : v, 1);
    }`;

  function webgl2(canvas) {
    const gl = canvas.getContext("webgl2", { alpha: false, antialias: false, preserveDrawingBuffer: true });
    if (!gl || gl.getParameter(gl.MAX_TEXTURE_SIZE) < Math.max(width, height)) return null;
    const program = gl.createProgram();
    for (const [type, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(type);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) return null;
    gl.useProgram(program);
    const place = (name) => gl.getUniformLocation(program, name);
    const textures = ["normals", "colour"].map((name, unit) => (gl.uniform1i(place(name), unit), gl.createTexture()));
    const [light, tint, ambient, intensity, srgb] = ["light", "tint", "ambient", "intensity", "srgb"].map(place);
    const painter = {
      mode: "webgl2",
      load() {
        [canvas.width, canvas.height] = [width, height];
        gl.viewport(0, 0, width, height);
        [normals, colour].forEach((values, unit) => {
          const one = values.length === 3;
          gl.activeTexture(gl.TEXTURE0 + unit);
          gl.bindTexture(gl.TEXTURE_2D, textures[unit]);
          gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGB32F, one ? 1 : width, one ? 1 : height, 0, gl.RGB, gl.FLOAT, values);
          gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
          gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
        });
        gl.uniform1i(srgb, surface.srgb);
      },
      draw(state) {
        gl.uniform3fv(light, state.light);
        gl.uniform3fv(tint, state.tint);
        gl.uniform1f(ambient, state.ambient);
        gl.uniform1f(intensity, state.intensity);
        gl.drawArrays(gl.TRIANGLES, 0, 3);
      },
      pixels() {
        const upward = new Uint8Array(4 * width * height), row = 4 * width, found = new Uint8Array(upward.length);
        gl.readPixels(0, 0, width, height, gl.RGBA, gl.UNSIGNED_BYTE, upward);
        for (let y = 0; y < height; y++) found.set(upward.subarray(y * row, (y + 1) * row), (height - 1 - y) * row);
        return found;
      },
    };
    painter.load();
    return painter;
  }

  function canvas2d(canvas) {
    const context = canvas.getContext("2d", { alpha: false, willReadFrequently: true });
    const encode = (v) => (v <= 0.0031308 ? v * 12.92 : 1.055 * v ** (1 / 2.4) - 0.055);
    const TOP = 65535, tones = (f) => Uint8Array.from({ length: TOP + 1 }, (_, i) => Math.round(255 * f(i / TOP)));
    const tables = [tones((v) => v), tones(encode)];
    let image, lengths;
    const painter = {
      mode: "canvas2d",
      load() {
        [canvas.width, canvas.height] = [width, height];
        image = context.createImageData(width, height);
        image.data.fill(255);
        lengths = new Float32Array(normals.length / 3);
        for (let j = 0; j < lengths.length; j++) lengths[j] = Math.hypot(normals[3 * j], normals[3 * j + 1], normals[3 * j + 2]);
      },
      draw({ light: [x, y, z], tint, ambient, intensity }) {
        // Flat and without calls: at 576×480 there are 16 ms for it.
        const { data } = image, table = tables[surface.srgb ? 1 : 0], step = colour.length === 3 ? 0 : 3;
        const [r, g, b] = tint.map((t) => t * intensity * TOP);
        for (let j = 0, i = 0, p = 0, k = 0; j < lengths.length; j++, i += 3, p += 4, k += step) {
          const facing = normals[i] * x + normals[i + 1] * y + normals[i + 2] * z;
          const lit = (facing > 0 ? facing : 0) + ambient * lengths[j];
          const red = lit * colour[k] * r, green = lit * colour[k + 1] * g, blue = lit * colour[k + 2] * b;
          data[p] = table[red < TOP ? (red > 0 ? (red + 0.5) | 0 : 0) : TOP];
          data[p + 1] = table[green < TOP ? (green > 0 ? (green + 0.5) | 0 : 0) : TOP];
          data[p + 2] = table[blue < TOP ? (blue > 0 ? (blue + 0.5) | 0 : 0) : TOP];
        }
        context.putImageData(image, 0, 0);
      },
      pixels: () => new Uint8Array(context.getImageData(0, 0, width, height).data),
    };
    painter.load();
    return painter;
  }

  // A canvas that one kind of context has touched gives no other: each painter gets its own.
  let canvas, painter;
  for (const make of location.hash === "#canvas2d" ? [canvas2d] : [webgl2, canvas2d]) {
    canvas = $("picture").cloneNode();
    painter = make(canvas);
    if (painter) break;
  }
  $("picture").replaceWith(canvas);

  // The state, and what shows it.

  const state = { light: surface.lights[0], tint: [1, 1, 1], ambient: 0, intensity: 1 };
  let moved = false;  // by somebody: another surface then leaves the light where it is
  const ball = $("ball"), pen = ball.getContext("2d"), shaded = pen.createImageData(ball.width, ball.height);
  let waiting = 0;

  const length = (v) => Math.max(Math.hypot(...v), 1e-9);
  const unit = (v) => v.map((c) => c / length(v));
  const degrees = (radians) => (radians * 180) / Math.PI;

  function change(what) {
    Object.assign(state, what);
    waiting ||= requestAnimationFrame(show);
  }

  function show() {
    cancelAnimationFrame(waiting);
    waiting = 0;
    painter.draw(state);
    drawBall();
    const strength = length(state.light) * state.intensity;
    $("direction").textContent = `${words(state.light)}, strength ${strength.toFixed(2)}`;
    for (const name of ["ambient", "intensity"]) {
      $(name).value = state[name];
      $(`${name}-value`).textContent = state[name].toFixed(2);
    }
  }

  function angles(light) {
    const [x, y, z] = unit(light);
    return [degrees(Math.atan2(x, z)), degrees(Math.atan2(y, Math.hypot(x, z)))];
  }

  function words(light) {
    const [azimuth, elevation] = angles(light).map(Math.round);
    const side = azimuth ? (azimuth > 0 ? " right" : " left") : "";
    const up = elevation ? (elevation > 0 ? " up" : " down") : "";
    return `azimuth ${Math.abs(azimuth)}°${side}, elevation ${Math.abs(elevation)}°${up}`;
  }

  function drawBall() {
    const size = ball.width, [lx, ly, lz] = unit(state.light), { data } = shaded;
    for (let p = 0; p < size * size; p++) {
      const x = (2 * (p % size) + 1) / size - 1, y = 1 - (2 * Math.floor(p / size) + 1) / size, rr = x * x + y * y;
      if (rr > 1) continue;
      const lit = Math.max(x * lx + y * ly + Math.sqrt(1 - rr) * lz, 0);
      data[4 * p] = data[4 * p + 1] = data[4 * p + 2] = 255 * (0.05 + 0.9 * lit) ** 0.6;
      data[4 * p + 3] = 127 * size * (1 - Math.sqrt(rr));  // opaque but for a soft edge
    }
    pen.putImageData(shaded, 0, 0);
    $("spot").style.left = `${50 + 50 * lx}%`;
    $("spot").style.top = `${50 - 50 * ly}%`;
    $("spot").classList.toggle("behind", lz < 0);
  }

  // What moves the light: it stands over the point touched, on a hemisphere that spans the picture, or the ball.

  const aim = (direction) => ((moved = true), change({ light: unit(direction).map((c) => c * length(state.light)) }));
  const home = () => ((moved = false), change({ light: surface.lights[$("which").value] ?? surface.lights[0] }));

  function follow(element) {
    const move = (event) => {
      const box = element.getBoundingClientRect();
      const x = (2 * (event.clientX - box.left)) / box.width - 1, y = 1 - (2 * (event.clientY - box.top)) / box.height;
      aim([x, y, Math.sqrt(Math.max(1 - x * x - y * y, 0))]);
    };
    element.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      element.setPointerCapture(event.pointerId);
      move(event);
    });
    element.addEventListener("pointermove", (event) => element.hasPointerCapture(event.pointerId) && move(event));
  }
  [canvas, ball].forEach(follow);

  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  canvas.addEventListener("keydown", (event) => {
    const arrow = ARROWS[event.key], step = event.shiftKey ? 1 : 5;
    if ((!arrow && event.key !== "Home") || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    if (!arrow) return home();
    const limit = (angle) => (Math.min(Math.max(angle, -89), 89) * Math.PI) / 180;
    const [azimuth, elevation] = angles(state.light).map((angle, i) => limit(angle + step * arrow[i]));
    aim([Math.cos(elevation) * Math.sin(azimuth), Math.sin(elevation), Math.cos(elevation) * Math.cos(azimuth)]);
  });

  for (const name of ["ambient", "intensity"]) {
    $(name).addEventListener("input", (event) => change({ [name]: event.target.valueAsNumber }));
  }
  $("which").addEventListener("change", home);
  $("reset").addEventListener("click", () => (home(), change({ ambient: 0, intensity: 1 })));
  canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
  canvas.addEventListener("webglcontextrestored", () => ((painter = webgl2(canvas)), change({})));

  // A PNG of a useful size and of the right proportions.
  $("download").addEventListener("click", () => {
    show();
    const large = document.createElement("canvas"), context = large.getContext("2d");
    large.height = height * Math.max(Math.ceil(512 / height), 1);
    large.width = Math.round(large.height * surface.aspect);
    context.imageSmoothingQuality = "high";
    context.drawImage(canvas, 0, 0, large.width, large.height);
    const link = document.createElement("a");
    link.download = "relit.png";
    link.href = large.toDataURL("image/png");
    link.click();
  });

  $("live").hidden = false;
  show();
  return {
    load(next) {
      take(next);
      painter.load();
      if (moved) change({}); else home();
      show();
    },
    home,
    state,
    draw: () => painter.draw(state),
    setLight: (x, y, z) => change({ light: [x, y, z] }),
    setTint: (tint) => change({ tint }),
    setAmbient: (ambient) => change({ ambient }),
    setIntensity: (intensity) => change({ intensity }),
    pixels() {
      if (waiting) show();
      return painter.pixels();
    },
    mode: painter.mode,
  };
}

const carried = document.getElementById("surface");
if (carried) window.dln = relighter(JSON.parse(carried.textContent));
