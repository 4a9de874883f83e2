#include "server/admin/model/schemas.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <map>
#include <string_view>
#include <type_traits>
#include <vector>

#include "server/admin/model/status.hpp"

namespace gpunbd::server {

namespace {

using Schemas = std::map<std::string_view, std::string>;

std::string reference(std::string_view schema) {
    return fmt::format("$ref: \"#/components/schemas/{}\"", schema);
}

template <class Value>
struct IsOptional : std::false_type {};
template <class Value>
struct IsOptional<std::optional<Value>> : std::true_type {};

struct NumberRange {
    std::uint64_t least = 0;
    std::uint64_t most = 0;  // 0: no limit

    std::string text() const {
        return fmt::format(", minimum: {}{}", least,
                           most == 0 ? "" : fmt::format(", maximum: {}", most));
    }
};

template <class Value>
std::string type_of(bool nullable, const NumberRange& range) {
    const auto or_null = [&](std::string_view type) {
        return nullable ? fmt::format("type: [{}, \"null\"]", type) : fmt::format("type: {}", type);
    };
    if constexpr (IsOptional<Value>::value) {
        return type_of<typename Value::value_type>(true, range);
    } else if constexpr (std::is_same_v<Value, std::string>) {
        return or_null("string");
    } else if constexpr (std::is_same_v<Value, bool>) {
        return or_null("boolean");
    } else if constexpr (std::is_floating_point_v<Value>) {
        return or_null("number") + range.text();
    } else if constexpr (std::is_integral_v<Value>) {
        return nullable ? or_null("integer") + range.text() : reference("Count");
    } else if constexpr (std::is_same_v<Value, CountsByReason>) {
        return reference("Counts");
    } else if constexpr (std::is_same_v<Value, storage::Histogram>) {
        return reference("Latency");
    } else if constexpr (IsVector<Value>::value) {
        return fmt::format("type: array, items: {{{}}}",
                           type_of<typename Value::value_type>(false, {}));
    } else {
        return reference(Value::schema.name);
    }
}

std::string description(std::string_view text) {
    return text.empty() ? std::string() : fmt::format(", description: \"{}\"", text);
}

template <class Object>
void add_schema(Schemas& out);

template <class Value>
void add_schemas_of(Schemas& out) {
    if constexpr (IsVector<Value>::value) {
        add_schemas_of<typename Value::value_type>(out);
    } else if constexpr (Described<Value>) {
        add_schema<Value>(out);
    }
}

template <class Object>
void add_schema(Schemas& out) {
    std::vector<std::string_view> names;
    std::string properties;
    for_each_field<Object>([&](const auto& field) {
        if (field.name.empty()) return;
        using Value = std::remove_cvref_t<decltype(field.value_in(std::declval<const Object&>()))>;
        add_schemas_of<Value>(out);
        bool nullable = false;
        NumberRange range;
        if constexpr (requires { field.member; }) {
            nullable = field.not_null_if != nullptr;
            range = {.least = field.least, .most = field.most};
        }
        names.push_back(field.name);
        properties += fmt::format("        {}: {{{}{}}}\n", field.name,
                                  field.words.empty()
                                      ? type_of<Value>(nullable, range)
                                      : fmt::format("enum: [{}]", fmt::join(field.words, ", ")),
                                  description(field.metric.help));
    });
    std::string& schema = out[Object::schema.name];
    schema = fmt::format("    {}:\n", Object::schema.name);
    if (!Object::schema.description.empty()) {
        schema += fmt::format("      description: \"{}\"\n", Object::schema.description);
    }
    schema += fmt::format(
        "      type: object\n      required: [{}]\n      additionalProperties: false\n"
        "      properties:\n{}",
        fmt::join(names, ", "), properties);
}

}  // namespace

std::string status_schemas() {
    Schemas schemas;
    add_schema<Status>(schemas);
    add_schema<ConnectionStatus>(schemas);
    add_schema<KeptStatus>(schemas);
    add_schema<ReclaimStatus>(schemas);
    std::string out;
    for (const auto& [name, schema] : schemas) out += schema;
    return out;
}

}  // namespace gpunbd::server
