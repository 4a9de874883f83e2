#include "server/admin/metrics/metrics.hpp"

#include <algorithm>
#include <utility>

#include "server/admin/metrics/exposition.hpp"

namespace gpunbd::server {

namespace {

// An object with the labels of its metrics.
template <class Object>
struct Labelled {
    const Object* object;
    Labels labels;
};
template <class Object>
using LabelledObjects = std::vector<Labelled<Object>>;

std::string_view label_value(const std::string& text) { return text; }
std::string_view label_value(bool value) { return value ? "yes" : "no"; }

Labels with(Labels labels, std::string_view name, std::string_view value) {
    labels.push_back({name, value});
    return labels;
}

template <class Object>
Labels labels_of(const Object& object, Labels labels, FieldRole role) {
    for_each_field<Object>([&](const auto& field) {
        if constexpr (requires { label_value(object.*field.member); }) {
            if (field.role == role)
                labels.push_back({field.label, label_value(object.*field.member)});
        }
    });
    return labels;
}

template <class Object>
void add_sample(Exposition& out, const Labelled<Object>& of, const auto& field) {
    const auto& value = (*of.object).*field.member;
    if (field.exposed_if != nullptr && !field.exposed_if(*of.object)) return;
    if constexpr (requires { value.has_value(); }) {
        if (value) out.add(of.labels, *value);
    } else if constexpr (requires { out.add(of.labels, value); }) {
        out.add(of.labels, value);
    } else if constexpr (std::is_same_v<decltype(value), const CountsByReason&>) {
        CountsByReason all;
        for (const std::string_view key : field.expected_keys) all.emplace(key, 0);
        for (const auto& [key, count] : value) all[key] = count;
        for (const auto& [key, count] : all) out.add(with(of.labels, field.label, key), count);
    }
}

template <class Object>
void add_metrics(Exposition& out, LabelledObjects<Object> objects);

// The metrics of the objects that `field` has.
template <class Object>
void add_part(Exposition& out, const LabelledObjects<Object>& objects, const auto& field) {
    using Value = std::decay_t<decltype(std::declval<Object>().*field.member)>;
    if constexpr (Described<Value>) {
        LabelledObjects<Value> parts;
        for (const auto& each : objects)
            parts.push_back({&((*each.object).*field.member), each.labels});
        add_metrics(out, std::move(parts));
    } else if constexpr (IsVector<Value>::value) {
        LabelledObjects<typename Value::value_type> parts;
        for (const auto& each : objects) {
            for (const auto& part : (*each.object).*field.member)
                parts.push_back({&part, each.labels});
        }
        add_metrics(out, std::move(parts));
    }
}

template <class Object>
void add_metrics(Exposition& out, LabelledObjects<Object> objects) {
    for (auto& each : objects) {
        each.labels = labels_of(*each.object, std::move(each.labels), FieldRole::label);
    }
    if constexpr (requires { Object::info_metric; }) {
        out.begin(Object::info_metric);
        for (const auto& each : objects)
            out.add(labels_of(*each.object, each.labels, FieldRole::info));
    }
    for_each_field<Object>([&](const auto& field) {
        if constexpr (requires { field.member; }) {
            if (!field.metric.name.empty()) {
                out.begin(field.metric);
                for (const auto& each : objects) add_sample(out, each, field);
            }
            if (field.role == FieldRole::part) add_part(out, objects, field);
        }
    });
}

void add_state(Exposition& out, const ProcessStatus& process) {
    out.begin({"gpunbd_state", MetricType::gauge, "1 for the state that the server is in."});
    for (const std::string_view state : ProcessStatus::states) {
        out.add({{"state", state}}, process.state == state);
    }
}

// Connections are counted by their properties. Each client would leave series behind.
void add_connections(Exposition& out, const std::vector<ConnectionStatus>& connections) {
    const auto count = [&](auto is) { return std::ranges::count_if(connections, is); };
    const auto serving = count([](const ConnectionStatus& each) { return each.serving; });
    out.begin({"gpunbd_connections", MetricType::gauge, "Current connections."});
    out.add({{"state", "negotiating"}}, std::ssize(connections) - serving);
    out.add({{"state", "serving"}}, serving);
    out.begin({"gpunbd_tls_connections", MetricType::gauge, "Current connections in TLS."});
    out.add({}, count([](const ConnectionStatus& each) { return !each.tls.empty(); }));

    CountsByReason by_listener;
    for (const ConnectionStatus& each : connections) ++by_listener[each.listener];
    out.begin(
        {"gpunbd_listener_connections", MetricType::gauge, "Current connections of a listener."});
    for (const auto& [listener, number] : by_listener) out.add({{"listener", listener}}, number);
}

}  // namespace

std::string metrics_text(const Status& status, bool openmetrics) {
    Exposition out(openmetrics);
    add_metrics(out, LabelledObjects<Status>{{&status, {}}});
    add_state(out, status.process);
    add_connections(out, status.connections);
    return std::move(out).text();
}

}  // namespace gpunbd::server
