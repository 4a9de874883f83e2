#include "server/admin/metrics/metric_list.hpp"

#include <fmt/format.h>

#include <utility>

#include "server/admin/metrics/exposition.hpp"
#include "server/admin/model/status.hpp"
#include "server/admin/model/structure.hpp"

namespace gpunbd::server {

namespace {

using LabelNames = std::vector<std::string_view>;

LabelNames labels_of(const Structure& structure, LabelNames labels, FieldRole role) {
    for (const Field& field : structure.fields) {
        if (field.role == role) labels.push_back(field.label);
    }
    return labels;
}

void list(std::vector<MetricText>& out, const Structure& structure, LabelNames labels) {
    const auto add = [&](const Metric& metric, LabelNames names) {
        out.push_back({fmt::format("{}{}", metric.name, suffix_of(metric.type)), std::move(names),
                       metric.help});
    };
    labels = labels_of(structure, std::move(labels), FieldRole::label);
    if (!structure.info_metric.name.empty()) {
        add(structure.info_metric, labels_of(structure, labels, FieldRole::info));
    }
    for (const Field& field : structure.fields) {
        if (!field.metric.name.empty()) {
            LabelNames names = labels;
            if (!field.label.empty()) names.push_back(field.label);
            add(field.metric, std::move(names));
        }
        if (field.role == FieldRole::part) list(out, field.type->structure(), labels);
    }
}

}  // namespace

std::vector<MetricText> all_metrics() {
    std::vector<MetricText> out;
    list(out, Status::structure(), {});
    return out;
}

}  // namespace gpunbd::server
