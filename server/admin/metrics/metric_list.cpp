#include "server/admin/metrics/metric_list.hpp"

#include <fmt/format.h>

#include <type_traits>
#include <utility>

#include "server/admin/metrics/exposition.hpp"
#include "server/admin/model/status.hpp"

namespace gpunbd::server {

namespace {

using LabelNames = std::vector<std::string_view>;

template <class Object>
LabelNames labels_of(LabelNames labels, FieldRole role) {
    for_each_field<Object>([&](const auto& field) {
        if constexpr (requires { field.role; }) {
            if (field.role == role) labels.push_back(field.label);
        }
    });
    return labels;
}

template <class Object>
void list(std::vector<MetricText>& out, LabelNames labels) {
    const auto add = [&](const Metric& metric, LabelNames names) {
        out.push_back({fmt::format("{}{}", metric.name, suffix_of(metric.type)), std::move(names),
                       metric.help});
    };
    labels = labels_of<Object>(std::move(labels), FieldRole::label);
    if constexpr (requires { Object::info_metric; }) {
        add(Object::info_metric, labels_of<Object>(labels, FieldRole::info));
    }
    for_each_field<Object>([&](const auto& field) {
        using Value = std::remove_cvref_t<decltype(field.value_in(std::declval<const Object&>()))>;
        if (!field.metric.name.empty()) {
            LabelNames names = labels;
            if (!field.label.empty()) names.push_back(field.label);
            add(field.metric, std::move(names));
        }
        if constexpr (requires { field.role; }) {
            if (field.role != FieldRole::part) return;
            if constexpr (IsVector<Value>::value) {
                list<typename Value::value_type>(out, labels);
            } else if constexpr (Described<Value>) {
                list<Value>(out, labels);
            }
        }
    });
}

}  // namespace

std::vector<MetricText> all_metrics() {
    std::vector<MetricText> out;
    list<Status>(out, {});
    return out;
}

}  // namespace gpunbd::server
