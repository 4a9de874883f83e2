// Writes metrics as text, in Prometheus's format 0.0.4 or in OpenMetrics 1.0. Only this class knows
// the differences between the two.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/admin/model/structure.hpp"
#include "storage/base/histogram.hpp"

namespace gpunbd::server {

struct Label {
    std::string_view name;
    std::string_view value;  // any bytes: they are escaped, and made valid UTF-8
};
using Labels = std::vector<Label>;

// Appended to the name of a metric: "_total", "_info", or nothing.
std::string_view suffix_of(MetricType type);

class Exposition {
 public:
    explicit Exposition(bool openmetrics) : openmetrics_(openmetrics) {}

    // Begins a metric, to which the following samples belong. One without samples is left out.
    void begin(const Metric& metric);

    template <std::integral Number>
    void add(const Labels& labels, Number value) {
        add_sample(suffix_of(metric_.type), labels,
                   fmt::format_int(static_cast<std::uint64_t>(value)).c_str());
    }
    void add(const Labels& labels, double value);
    void add(const Labels& labels);  // of an info metric, whose value is 1
    void add(const Labels& labels, const storage::Histogram& durations);

    std::string text() &&;

 private:
    void add_head();
    void add_sample(std::string_view suffix, const Labels& labels, std::string_view value,
                    std::string_view edge = {});

    const bool openmetrics_;
    Metric metric_{};
    bool head_missing_ = false;
    std::string text_;
};

}  // namespace gpunbd::server
