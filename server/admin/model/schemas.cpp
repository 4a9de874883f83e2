#include "server/admin/model/schemas.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "server/admin/model/status.hpp"
#include "server/admin/model/structure.hpp"

namespace gpunbd::server {

namespace {

using Schemas = std::map<std::string_view, std::string>;

std::string reference(std::string_view schema) {
    return fmt::format("$ref: \"#/components/schemas/{}\"", schema);
}

struct NumberRange {
    std::uint64_t least = 0;
    std::uint64_t most = 0;  // 0: no limit

    std::string text() const {
        return fmt::format(", minimum: {}{}", least,
                           most == 0 ? "" : fmt::format(", maximum: {}", most));
    }
};

std::string type_of(const ValueType& type, bool nullable, const NumberRange& range) {
    nullable = nullable || type.optional();
    const auto or_null = [&](std::string_view name) {
        return nullable ? fmt::format("type: [{}, \"null\"]", name) : fmt::format("type: {}", name);
    };
    switch (type.kind) {
        case ValueKind::text:
            return or_null("string");
        case ValueKind::boolean:
            return or_null("boolean");
        case ValueKind::real:
            return or_null("number") + range.text();
        case ValueKind::count32:
        case ValueKind::count:
        case ValueKind::integer:
            return nullable ? or_null("integer") + range.text() : reference("Count");
        case ValueKind::counts:
            return reference("Counts");
        case ValueKind::histogram:
            return reference("Latency");
        case ValueKind::object:
            return reference(type.structure().schema.name);
        case ValueKind::list:
            return fmt::format("type: array, items: {{{}}}",
                               reference(type.structure().schema.name));
    }
    return {};
}

std::string description(std::string_view text) {
    return text.empty() ? std::string() : fmt::format(", description: \"{}\"", text);
}

void add_schema(Schemas& out, const Structure& structure) {
    std::vector<std::string_view> names;
    std::string properties;
    for (const Field& field : structure.fields) {
        if (field.name.empty()) continue;
        if (field.type->structure != nullptr) add_schema(out, field.type->structure());
        const bool nullable = field.not_null_if != nullptr;
        const NumberRange range{.least = field.least, .most = field.most};
        names.push_back(field.name);
        properties += fmt::format("        {}: {{{}{}}}\n", field.name,
                                  field.words.empty()
                                      ? type_of(*field.type, nullable, range)
                                      : fmt::format("enum: [{}]", fmt::join(field.words, ", ")),
                                  description(field.metric.help));
    }
    std::string& schema = out[structure.schema.name];
    schema = fmt::format("    {}:\n", structure.schema.name);
    if (!structure.schema.description.empty()) {
        schema += fmt::format("      description: \"{}\"\n", structure.schema.description);
    }
    schema += fmt::format(
        "      type: object\n      required: [{}]\n      additionalProperties: false\n"
        "      properties:\n{}",
        fmt::join(names, ", "), properties);
}

}  // namespace

std::string status_schemas() {
    Schemas schemas;
    add_schema(schemas, Status::structure());
    add_schema(schemas, ConnectionStatus::structure());
    add_schema(schemas, KeptStatus::structure());
    add_schema(schemas, ReclaimStatus::structure());
    std::string out;
    for (const auto& [name, schema] : schemas) out += schema;
    return out;
}

}  // namespace gpunbd::server
