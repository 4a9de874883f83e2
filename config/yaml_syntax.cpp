#include "config/yaml_syntax.hpp"

#include <fmt/format.h>
#include <yaml-cpp/exceptions.h>

namespace gpunbd::config {
namespace {

struct Remedy {
    std::string_view start;  // of yaml-cpp's message
    std::string_view remedy;
};
constexpr std::string_view align =
    "start the keys of a mapping, and the items of a list, in the same column";
const Remedy remedies[] = {
    {YAML::ErrorMsg::END_OF_MAP_FLOW, "close '{' with '}', and separate its parts by ','"},
    {YAML::ErrorMsg::END_OF_SEQ_FLOW, "close '[' with ']', and separate its items by ','"},
    {YAML::ErrorMsg::FLOW_END, "close each '[' with ']' and each '{' with '}'"},
    {YAML::ErrorMsg::END_OF_MAP, align},
    {YAML::ErrorMsg::END_OF_SEQ, align},
    {YAML::ErrorMsg::BLOCK_ENTRY, "start a new line with '- '"},
    {YAML::ErrorMsg::MAP_KEY, align},
    {YAML::ErrorMsg::MAP_VALUE, "indent the lines below, or quote a text that contains ': '"},
    {YAML::ErrorMsg::UNKNOWN_TOKEN, "quote a text that begins with @, %, ` or a similar character"},
    {YAML::ErrorMsg::EOF_IN_SCALAR, "close the quotes"},
    {YAML::ErrorMsg::DOC_IN_SCALAR, "close the quotes"},
    {YAML::ErrorMsg::INVALID_ESCAPE, "write \\\\ for a backslash, or use single quotes"},
    {YAML::ErrorMsg::ALIAS_NOT_FOUND, "quote a text that begins with '*'"},
    {YAML::ErrorMsg::ANCHOR_NOT_FOUND, "quote a text that begins with '&'"},
    {YAML::ErrorMsg::UNKNOWN_ANCHOR,
     "define it first with '&', or quote a text that begins with '*'"},
};

}  // namespace

std::string about_syntax(const std::string& message_of_parser) {
    for (const Remedy& each : remedies) {
        if (message_of_parser.starts_with(each.start)) {
            return fmt::format("YAML syntax: {}; {}", message_of_parser, each.remedy);
        }
    }
    return fmt::format("YAML syntax: {}; quote the text, or see gpunbd.yaml(5)", message_of_parser);
}

std::optional<std::size_t> indenting_tab(std::string_view line) {
    const std::size_t tab = line.substr(0, line.find_first_not_of(" \t-")).find('\t');
    if (tab == std::string_view::npos) return std::nullopt;
    return tab;
}

}  // namespace gpunbd::config
