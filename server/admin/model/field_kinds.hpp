// The kinds of fields in the tables of status_structures.cpp and export_structures.cpp.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "server/admin/model/structure.hpp"

namespace gpunbd::server {

// --- the types of values

template <class Value>
constexpr ValueKind kind_of() {
    if constexpr (std::same_as<Value, std::string>)
        return ValueKind::text;
    else if constexpr (std::same_as<Value, bool>)
        return ValueKind::boolean;
    else if constexpr (std::same_as<Value, std::uint32_t>)
        return ValueKind::count32;
    else if constexpr (std::same_as<Value, std::uint64_t>)
        return ValueKind::count;
    else if constexpr (std::same_as<Value, std::int64_t>)
        return ValueKind::integer;
    else if constexpr (std::same_as<Value, double>)
        return ValueKind::real;
    else if constexpr (std::same_as<Value, CountsByReason>)
        return ValueKind::counts;
    else if constexpr (std::same_as<Value, storage::Histogram>)
        return ValueKind::histogram;
    else {
        static_assert(Described<Value>);
        return ValueKind::object;
    }
}

template <class Value>
constexpr ValueType type_of{.kind = kind_of<Value>()};
template <Described Value>
constexpr ValueType type_of<Value>{.kind = ValueKind::object, .structure = &Value::structure};
template <Described Item>
constexpr ValueType type_of<std::vector<Item>>{
    .kind = ValueKind::list,
    .structure = &Item::structure,
    .size = [](const void* list) { return as<std::vector<Item>>(list).size(); },
    .item = [](const void* list, std::size_t index) -> const void* {
        return &as<std::vector<Item>>(list)[index];
    },
    .append = [](void* list) -> void* { return &as<std::vector<Item>>(list).emplace_back(); }};
template <class Value>
constexpr ValueType type_of<std::optional<Value>>{
    .kind = kind_of<Value>(),
    .value = [](const void* optional) -> const void* {
        const auto& given = as<std::optional<Value>>(optional);
        return given ? &*given : nullptr;
    },
    .emplace = [](void* optional) -> void* {
        return &as<std::optional<Value>>(optional).emplace();
    }};

// --- members

template <class Owner, class Part>
std::size_t distance_of(const Owner& owner, const Part& part) {
    return static_cast<std::size_t>(static_cast<const char*>(static_cast<const void*>(&part)) -
                                    static_cast<const char*>(static_cast<const void*>(&owner)));
}

template <class Owner>
const Owner& any_object() {
    static const Owner any{};
    return any;
}

template <class Owner, class Value>
Field field(std::string_view name, Value Owner::*member, std::string_view help = {}) {
    const Owner& any = any_object<Owner>();
    return {.name = name,
            .type = &type_of<Value>,
            .offset = distance_of(any, any.*member),
            .metric = {.help = help}};
}
template <class Owner, class Value>
Field label(std::string_view name, Value Owner::*member, std::string_view label,
            std::string_view help = {}) {
    Field out = field(name, member, help);
    out.role = FieldRole::label;
    out.label = label;
    return out;
}
template <class Owner, class Value>
Field info(std::string_view name, Value Owner::*member, std::string_view label) {
    Field out = field(name, member);
    out.role = FieldRole::info;
    out.label = label;
    return out;
}
template <class Owner, class Value>
Field part(std::string_view name, Value Owner::*member, std::string_view help = {}) {
    Field out = field(name, member, help);
    out.role = FieldRole::part;
    return out;
}
template <class Owner, class Value>
Field gauge(std::string_view name, Value Owner::*member, std::string_view metric,
            std::string_view help) {
    Field out = field(name, member);
    out.metric = {metric, MetricType::gauge, help};
    return out;
}
template <class Owner, class Value>
Field counter(std::string_view name, Value Owner::*member, std::string_view metric,
              std::string_view help) {
    Field out = gauge(name, member, metric, help);
    out.metric.type = MetricType::counter;
    return out;
}
// A map: one sample for each key.
template <class Owner>
Field counters(std::string_view name, CountsByReason Owner::*member, std::string_view label,
               std::string_view metric, std::string_view help,
               std::span<const std::string_view> expected_keys = {}) {
    Field out = counter(name, member, metric, help);
    out.label = label;
    out.expected_keys = expected_keys;
    return out;
}
template <class Owner>
Field histogram(std::string_view name, storage::Histogram Owner::*member, std::string_view metric,
                std::string_view help) {
    Field out = gauge(name, member, metric, help);
    out.metric.type = MetricType::histogram;
    return out;
}

// --- functions of an object, without captures

template <class Owner, std::predicate<const Owner&> Test>
Field::Condition condition(Test) {
    return [](const void* object) { return Test{}(as<Owner>(object)); };
}
template <class Owner, class Value, std::predicate<const Owner&> Test>
Field gauge(std::string_view name, Value Owner::*member, std::string_view metric,
            std::string_view help, Test exposed_if) {
    Field out = gauge(name, member, metric, help);
    out.exposed_if = condition<Owner>(exposed_if);
    return out;
}
template <class Owner, class Value, std::predicate<const Owner&> Test>
Field nullable(std::string_view name, Value Owner::*member, Test not_null_if,
               std::string_view help = {}) {
    Field out = field(name, member, help);
    out.not_null_if = condition<Owner>(not_null_if);
    return out;
}
// A value that is calculated from the members.
template <class Owner, std::invocable<const Owner&> Calculate>
Field calculated(std::string_view name, Calculate, std::string_view help = {}) {
    using Value = std::invoke_result_t<Calculate, const Owner&>;
    Field out{.name = name, .type = &type_of<Value>, .metric = {.help = help}};
    if constexpr (std::same_as<Value, CountsByReason>) {
        out.counts = [](const void* object) { return Calculate{}(as<Owner>(object)); };
    } else {
        static_assert(std::same_as<Value, std::uint64_t>, "readers take a number of this type");
        out.number = [](const void* object) { return Calculate{}(as<Owner>(object)); };
    }
    return out;
}
// A metric that JSON does not have; of a map: one sample for each key.
template <class Owner, std::invocable<const Owner&> Calculate>
Field only_gauge(std::string_view metric, std::string_view help, Calculate calculate,
                 std::string_view label = {}) {
    Field out = calculated<Owner>({}, calculate);
    out.label = label;
    out.metric = {metric, MetricType::gauge, help};
    return out;
}

// --- structures

// Those of WorkerCounts and so on.
template <class Counts>
using FieldsOf = std::array<Field, std::tuple_size_v<decltype(Counts::members())>>;
FieldsOf<WorkerCounts<std::uint64_t>> fields_of(const WorkerCounts<std::uint64_t>&);
FieldsOf<ConnectionCounts<std::uint64_t>> fields_of(const ConnectionCounts<std::uint64_t>&);
FieldsOf<ExportCounts<std::uint64_t>> fields_of(const ExportCounts<std::uint64_t>&);
FieldsOf<RequestCounts<std::uint64_t>> fields_of(const RequestCounts<std::uint64_t>&);

template <class Type>
Structure structure_of(Schema schema, std::vector<Field> fields, Metric info_metric = {}) {
    if constexpr (requires { typename Type::Counts; }) {
        const Type& any = any_object<Type>();
        const typename Type::Counts& counts = any;
        for (Field field : fields_of(counts)) {
            field.offset += distance_of(any, counts);
            fields.push_back(field);
        }
    }
    return {.schema = schema, .fields = std::move(fields), .info_metric = info_metric};
}

}  // namespace gpunbd::server
