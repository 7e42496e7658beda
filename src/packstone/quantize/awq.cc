#include "packstone/quantize/awq.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "packstone/quantize/feedback.h"
#include "packstone/transcode/unpack.h"

namespace packstone {
namespace {

constexpr std::string_view kWhere = "quantize.search_awq_scales";
constexpr int kRatios = 20;
constexpr float kScaleMin = 1e-4f;
constexpr std::int64_t kRowsMax = 256;  // of a matrix

// The rows of a matrix that the search looks at.
struct Sample {
  std::vector<float> values;
  std::int64_t rows = 0;
};

Sample sample_of(const MatrixView& weight, const AwqGroup& group) {
  Sample sample;
  sample.rows = std::min(weight.rows, kRowsMax);
  // A layout whose tiles are taller takes the whole matrix.
  if (layout_rule(group.target, {sample.rows, weight.cols}, group.params) != nullptr)
    sample.rows = weight.rows;
  sample.values.resize(static_cast<std::size_t>(sample.rows * weight.cols));
  for (std::int64_t i = 0; i < sample.rows; ++i)
    std::copy_n(weight.row(i * weight.rows / sample.rows), weight.cols,
                sample.values.data() + i * weight.cols);
  return sample;
}

class Search {
 public:
  Search(const AwqGroup& group, const MatrixProduct& product, ThreadPool& pool,
         std::string_view subject)
      : group_(group),
        product_(product),
        pool_(pool),
        subject_(subject),
        cols_(group.weights.front().cols) {}

  Result<AwqScales> run();

 private:
  std::size_t scale_count() const {
    return static_cast<std::size_t>(group_.shared.empty() ? cols_ : group_.scales);
  }
  std::size_t scale_of(std::int64_t col) const {
    const auto c = static_cast<std::size_t>(col);
    return group_.shared.empty() ? c : static_cast<std::size_t>(group_.shared[c]);
  }
  // Means over the columns that share a scale.
  std::vector<float> shared_mean(std::span<const float> of_columns) const;
  std::vector<float> relative_weight() const;
  std::vector<float> candidate(float ratio, bool with_weight) const;
  Result<double> loss(const std::vector<float>& scales);

  const AwqGroup& group_;
  const MatrixProduct& product_;
  ThreadPool& pool_;
  std::string_view subject_;
  std::int64_t cols_;
  std::vector<Sample> samples_;
  std::vector<float> x_, w_;  // a scale each
  std::vector<float> scaled_, spread_, importance_;
};

std::vector<float> Search::shared_mean(std::span<const float> of_columns) const {
  std::vector<double> sums(scale_count());
  std::vector<int> counts(scale_count());
  for (std::int64_t c = 0; c < cols_; ++c) {
    sums[scale_of(c)] += of_columns[static_cast<std::size_t>(c)];
    ++counts[scale_of(c)];
  }
  std::vector<float> means(scale_count());
  for (std::size_t s = 0; s < means.size(); ++s)
    means[s] = static_cast<float>(sums[s] / std::max(counts[s], 1));
  return means;
}

// The mean over the rows of |w| / (max |w| of its group + 1e-6), column by column.
std::vector<float> Search::relative_weight() const {
  const std::int64_t group = group_cols(group_.target, group_.params);
  const std::int64_t size = group > 0 && group < cols_ ? group : cols_;
  std::vector<double> sums(static_cast<std::size_t>(cols_));
  std::int64_t rows = 0;
  for (const Sample& sample : samples_) {
    rows += sample.rows;
    for (std::int64_t r = 0; r < sample.rows; ++r)
      for (std::int64_t first = 0; first < cols_; first += size) {
        const std::int64_t end = std::min(first + size, cols_);
        const float* row = sample.values.data() + r * cols_;
        float largest = 0;
        for (std::int64_t c = first; c < end; ++c) largest = std::max(largest, std::abs(row[c]));
        for (std::int64_t c = first; c < end; ++c)
          sums[static_cast<std::size_t>(c)] += std::abs(row[c]) / (largest + 1e-6f);
      }
  }
  std::vector<float> means(sums.size());
  for (std::size_t c = 0; c < means.size(); ++c)
    means[c] = static_cast<float>(sums[c] / static_cast<double>(std::max<std::int64_t>(rows, 1)));
  return means;
}

std::vector<float> Search::candidate(float ratio, bool with_weight) const {
  std::vector<float> scales(x_.size());
  for (std::size_t s = 0; s < scales.size(); ++s) {
    float value = std::pow(x_[s], ratio);
    if (with_weight) value /= std::pow(w_[s], 1 - ratio) + 1e-4f;
    scales[s] = std::max(value, kScaleMin);
  }
  const auto [low, high] = std::ranges::minmax(scales);
  const float middle = std::sqrt(low * high);
  for (float& scale : scales) {
    scale /= middle;
    if (!std::isfinite(scale) || scale <= 0) scale = 1;
  }
  return scales;
}

Result<double> Search::loss(const std::vector<float>& scales) {
  for (std::int64_t c = 0; c < cols_; ++c) {
    const float s = scales[scale_of(c)];
    const float cost = group_.moment[static_cast<std::size_t>(c * cols_ + c)] / (s * s);
    importance_[static_cast<std::size_t>(c)] = std::isfinite(cost) && cost > 0 ? cost : 0;
  }
  double total = 0;
  for (const Sample& sample : samples_) {
    scaled_.resize(sample.values.size());
    spread_.resize(sample.values.size());
    for (std::size_t i = 0; i < scaled_.size(); ++i)
      scaled_[i] = sample.values[i] * scales[scale_of(static_cast<std::int64_t>(i) % cols_)];
    PACKSTONE_TRY(const Quantized made,
                  round_to_grid({scaled_.data(), sample.rows, cols_, cols_}, importance_,
                                group_.target, group_.params, pool_, subject_));
    auto errors = [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t r = begin; r < end; ++r) {
        float* row = scaled_.data() + r * cols_;
        decode_row(made.weight, r, {row, static_cast<std::size_t>(cols_)});
        for (std::int64_t c = 0; c < cols_; ++c)
          row[c] = row[c] / scales[scale_of(c)] -
                   sample.values[static_cast<std::size_t>(r * cols_ + c)];
      }
    };
    pool_.parallel(sample.rows, 8, errors);
    product_({scaled_.data(), sample.rows, cols_, cols_},
             {group_.moment.data(), cols_, cols_, cols_}, spread_.data(), cols_);
    for (std::size_t i = 0; i < scaled_.size(); ++i)
      total += static_cast<double>(scaled_[i]) * spread_[i];
  }
  return total;
}

Result<AwqScales> Search::run() {
  for (const MatrixView& weight : group_.weights) samples_.push_back(sample_of(weight, group_));
  importance_.resize(static_cast<std::size_t>(cols_));
  x_ = shared_mean(group_.mean_abs);
  w_ = shared_mean(relative_weight());
  AwqScales best{std::vector<float>(scale_count(), 1.0f)};
  PACKSTONE_TRY(best.unscaled_loss, loss(best.scales));
  best.loss = best.unscaled_loss;
  for (const bool with_weight : {false, true})
    for (int step = with_weight ? 0 : 1; step < kRatios; ++step) {
      std::vector<float> scales = candidate(static_cast<float>(step) / kRatios, with_weight);
      PACKSTONE_TRY(const double found, loss(scales));
      if (!(found < best.loss)) continue;
      best.loss = found;
      best.scales = std::move(scales);
    }
  return best;
}

Status check_group(const AwqGroup& group, std::string_view subject) {
  const auto bad = [&](std::string got, std::string_view need) {
    return fail(ErrorCode::kInvalidInput, kWhere, subject, std::move(got), need);
  };
  if (group.weights.empty()) return bad("no matrix", "at least one");
  const std::int64_t cols = group.weights.front().cols;
  for (const MatrixView& weight : group.weights)
    if (weight.cols != cols || weight.rows < 1 || cols < 1)
      return bad(fmt::format("[{}, {}]", weight.rows, weight.cols), "matrices that share inputs");
  const auto width = static_cast<std::size_t>(cols);
  if (group.moment.size() != width * width || group.mean_abs.size() != width)
    return bad(fmt::format("statistics of {} and {} numbers", group.moment.size(),
                           group.mean_abs.size()),
               "those of all columns");
  if (!group.shared.empty() && group.shared.size() != width)
    return bad(fmt::format("{} shared scales", group.shared.size()), "one a column, or none");
  for (const std::int32_t scale : group.shared)
    if (scale < 0 || scale >= group.scales)
      return bad(fmt::format("scale {}", scale), "one of the scales");
  return {};
}

}  // namespace

Result<AwqScales> search_awq_scales(const AwqGroup& group, const MatrixProduct& product,
                                    ThreadPool& pool, std::string_view subject) {
  PACKSTONE_CHECK_OK(check_group(group, subject));
  try {
    return Search(group, product, pool, subject).run();
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kExhausted, kWhere, subject, "too little memory",
                "four times 256 rows of the matrices");
  }
}

}  // namespace packstone
