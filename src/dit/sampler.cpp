// Flow-matching samplers, step for step as diffusers' FlowMatchEulerDiscreteScheduler and UniPCMultistepScheduler (Zhao
// et al., "UniPC", 2023; order 2, B(h) = e^h - 1) with flow sigmas. Sigmas are rounded to f32 where those classes do,
// because near sigma = 1 the half log signal-to-noise ratio magnifies that rounding.
#include <array>
#include <cmath>
#include <vector>

#include "base/fail.hpp"
#include "tulle/model.hpp"

namespace tulle {
namespace {

constexpr double kTrainSteps = 1000;
constexpr double kFirstSigmaGap = 1e-6;  // UniPC may not start at sigma = 1 exactly: log(1 - sigma)

double shifted(double sigma, double shift) { return shift * sigma / (1 + (shift - 1) * sigma); }

// count numbers from first towards last; the last one is included when `closed`.
std::vector<double> linspace(double first, double last, std::int32_t count, bool closed) {
  const std::int32_t gaps = closed ? count - 1 : count;
  std::vector<double> values;
  for (std::int32_t i = 0; i < count; ++i) values.push_back(gaps == 0 ? first : first + (last - first) * i / gaps);
  return values;
}

struct Times {
  std::vector<float> sigmas;     // [steps + 1], the last is 0
  std::vector<float> timesteps;  // [steps]
};

// The range of sigmas is the training range, itself shifted; the schedule is shifted once more.
Times euler_times(const SamplerOptions& o) {
  const double least = static_cast<float>(shifted(1 / kTrainSteps, o.shift));
  Times t;
  for (double s : linspace(1, least, o.steps, true)) {
    t.sigmas.push_back(static_cast<float>(shifted(s, o.shift)));
    t.timesteps.push_back(t.sigmas.back() * static_cast<float>(kTrainSteps));
  }
  t.sigmas.push_back(0);
  return t;
}

// The model is given whole timesteps.
Times unipc_times(const SamplerOptions& o) {
  Times t;
  for (double s : linspace(1, 1 / kTrainSteps, o.steps, false)) {
    double sigma = shifted(s, o.shift);
    if (t.sigmas.empty() && std::fabs(sigma - 1) < kFirstSigmaGap) sigma -= kFirstSigmaGap;
    t.sigmas.push_back(static_cast<float>(sigma));
    t.timesteps.push_back(static_cast<float>(std::trunc(sigma * kTrainSteps)));
  }
  t.sigmas.push_back(0);
  return t;
}

double half_log_snr(float sigma) { return std::log(1.0 - sigma) - std::log(static_cast<double>(sigma)); }

// The linear map x_t = x * of_x + m0 * of_m0 + m1 * of_m1 + mt * of_mt of one UniPC update from sigma s to sigma t.
struct Update {
  double of_x = 0, of_m0 = 0, of_m1 = 0, of_mt = 0;
};

struct StepSize {
  double alpha = 0, hh = 0, phi1 = 0, ratio = 0;  // ratio: (lambda of the older output - lambda_s) / h
};

StepSize step_size(float from, float to) {
  StepSize s;
  s.alpha = 1.0 - to;
  s.hh = -(half_log_snr(to) - half_log_snr(from));
  s.phi1 = std::expm1(s.hh);
  return s;
}

// Predictor; `older` is the sigma of the output before, used at order 2.
Update predictor(float older, float from, float to, int order) {
  const StepSize s = step_size(from, to);
  Update u{static_cast<double>(to) / from, -s.alpha * s.phi1, 0, 0};
  if (order == 2) {
    const double ratio = (half_log_snr(older) - half_log_snr(from)) / -s.hh;
    const double weight = -s.alpha * s.phi1 * 0.5 / ratio;
    u.of_m1 = weight, u.of_m0 -= weight;
  }
  return u;
}

// Corrector: the predictor's step again, now that the output at `to` is known.
Update corrector(float older, float from, float to, int order) {
  const StepSize s = step_size(from, to);
  Update u{static_cast<double>(to) / from, -s.alpha * s.phi1, 0, 0};
  double weight_now = 0.5;
  if (order == 2) {
    const double ratio = (half_log_snr(older) - half_log_snr(from)) / -s.hh;
    const double phi2 = s.phi1 / s.hh - 1, phi3 = phi2 / s.hh - 0.5;
    const double b1 = phi2 / s.phi1, b2 = 2 * phi3 / s.phi1;
    // rho_older + rho_now = b1 and ratio * rho_older + rho_now = b2
    const double weight_older = (b2 - b1) / (ratio - 1);
    weight_now = b1 - weight_older;
    const double weight = -s.alpha * s.phi1 * weight_older / ratio;
    u.of_m1 = weight, u.of_m0 -= weight;
  }
  u.of_mt = -s.alpha * s.phi1 * weight_now;
  u.of_m0 -= u.of_mt;
  return u;
}

}  // namespace

struct Sampler::Impl {
  SamplerOptions options;
  Times times;
  std::int32_t next = 0;
  int order = 0;  // of the last predictor
  std::vector<float> last_sample, output, older_output;

  float sigma(std::int32_t step) const { return step < 0 ? 0.f : times.sigmas[static_cast<std::size_t>(step)]; }

  void euler(std::int32_t step, std::span<const float> velocity, std::span<float> x) const {
    const float dt = sigma(step + 1) - sigma(step);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += dt * velocity[i];
  }

  void correct(std::int32_t step, std::span<const float> now, std::span<float> x) const {
    const Update u = corrector(sigma(step - 2), sigma(step - 1), sigma(step), order);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double older = order == 2 ? double{older_output[i]} : 0.0;
      x[i] = static_cast<float>(u.of_x * last_sample[i] + u.of_m0 * output[i] + u.of_m1 * older + u.of_mt * now[i]);
    }
  }

  void predict(std::int32_t step, std::span<float> x) const {
    const Update u = predictor(sigma(step - 1), sigma(step), sigma(step + 1), order);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double older = order == 2 ? double{older_output[i]} : 0.0;
      x[i] = static_cast<float>(u.of_x * x[i] + u.of_m0 * output[i] + u.of_m1 * older);
    }
  }

  void unipc(std::int32_t step, std::span<const float> velocity, std::span<float> x) {
    std::vector<float> now(x.size());  // predicted x_0
    for (std::size_t i = 0; i < x.size(); ++i) now[i] = x[i] - sigma(step) * velocity[i];
    if (step > 0) correct(step, now, x);
    older_output = std::move(output);
    output = std::move(now);
    // The first step has no history, and the last one leads to sigma = 0, where order 2 is not defined.
    order = step == 0 || step + 1 == options.steps ? 1 : 2;
    last_sample.assign(x.begin(), x.end());
    predict(step, x);
  }
};

Sampler::Sampler(const SamplerOptions& o) : impl_(std::make_unique<Impl>()) {
  require(o.steps >= 1, "{} steps make no video; at least one is needed", o.steps);
  require(o.kind == "euler" || o.kind == "unipc", "there is no sampler \"{}\": use euler or unipc", o.kind);
  require(std::isfinite(o.shift) && o.shift > 0, "the shift {} must be a positive number", o.shift);
  require(std::isfinite(o.guidance), "the guidance scale {} must be a finite number", o.guidance);
  impl_->options = o;
  impl_->times = o.kind == "euler" ? euler_times(o) : unipc_times(o);
}
Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;

std::int32_t Sampler::steps() const { return impl_->options.steps; }

double Sampler::sigma(std::int32_t step) const {
  require(step >= 0 && step <= steps(), "step {} is not within 0 ... {}", step, steps());
  return impl_->sigma(step);
}

float Sampler::timestep(std::int32_t step) const {
  require(step >= 0 && step < steps(), "step {} is not within 0 ... {}", step, steps() - 1);
  return impl_->times.timesteps[static_cast<std::size_t>(step)];
}

void Sampler::advance(std::int32_t step, std::span<const float> velocity, std::span<float> latents) {
  require(step == impl_->next && step < steps(), "step {} comes out of order: step {} of {} is next", step, impl_->next,
          steps());
  require(velocity.size() == latents.size(), "{} velocities do not fit {} latents", velocity.size(), latents.size());
  require(step == 0 || impl_->output.empty() || impl_->output.size() == latents.size(),
          "{} latents came after steps with {}", latents.size(), impl_->output.size());
  if (impl_->options.kind == "euler")
    impl_->euler(step, velocity, latents);
  else
    impl_->unipc(step, velocity, latents);
  ++impl_->next;
}

void apply_guidance(std::span<float> cond, std::span<const float> uncond, float guidance) {
  require(cond.size() == uncond.size(), "the branches differ in size: {} and {}", cond.size(), uncond.size());
  for (std::size_t i = 0; i < cond.size(); ++i) cond[i] = uncond[i] + guidance * (cond[i] - uncond[i]);
}

}  // namespace tulle
