#include "config/yaml_tree.hpp"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "config/quote.hpp"

namespace gpunbd::config {

namespace {

// Messages about invalid YAML: the error of the parser, and a remedy.

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

std::string about_syntax(const std::string& message_of_parser) {
    for (const Remedy& each : remedies) {
        if (message_of_parser.starts_with(each.start)) {
            return fmt::format("YAML syntax: {}; {}", message_of_parser, each.remedy);
        }
    }
    return fmt::format("YAML syntax: {}; quote the text, or see gpunbd.yaml(5)", message_of_parser);
}

// The column, from 0, of a tab in the indentation. The parser reports tabs at a later position, or
// as another error.
std::optional<std::size_t> indenting_tab(std::string_view line) {
    const std::size_t tab = line.substr(0, line.find_first_not_of(" \t-")).find('\t');
    if (tab == std::string_view::npos) return std::nullopt;
    return tab;
}

constexpr std::size_t deepest_nesting = 16;  // the configuration itself needs 5

struct Refused {
    Position position;
    std::string what;
};

int starts_character(char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80 ? 1 : 0; }

// Returns the line and column of a byte.
Position position_of_offset(std::string_view text, std::size_t offset) {
    const std::string_view before = text.substr(0, offset);
    const std::size_t line_break = before.rfind('\n');
    const std::string_view line =
        line_break == std::string_view::npos ? before : before.substr(line_break + 1);
    const auto characters = std::count_if(line.begin(), line.end(), starts_character);
    return {static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1,
            static_cast<int>(characters) + 1};
}

// Rejects bytes that yaml-cpp misreads: it guesses other encodings, and silently ends the file at
// the byte 0x04.
std::optional<Refused> find_odd_byte(std::string_view text) {
    const std::size_t invalid = find_invalid_utf8(text);
    for (std::size_t i = 0; i < std::min(invalid, text.size()); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        const bool line_end = byte == '\r' && i + 1 < text.size() && text[i + 1] == '\n';
        if ((byte < 0x20 && byte != '\t' && byte != '\n' && !line_end) || byte == 0x7f) {
            return Refused{
                position_of_offset(text, i),
                fmt::format("the byte 0x{:02x} is not allowed in YAML text; save the file "
                            "as plain text",
                            byte)};
        }
    }
    if (invalid == std::string_view::npos) return std::nullopt;
    return Refused{position_of_offset(text, invalid),
                   fmt::format("the byte 0x{:02x} is not UTF-8; save the file as UTF-8",
                               static_cast<unsigned char>(text[invalid]))};
}

class TreeBuilder : public YAML::EventHandler {
 public:
    TreeBuilder(std::string_view text, YamlTree& tree) : tree_(tree) {
        for (std::size_t start = 0; start <= text.size();) {
            const std::size_t end = std::min(text.find('\n', start), text.size());
            lines_.push_back(text.substr(start, end - start));
            start = end + 1;
        }
    }

    // yaml-cpp counts from 0, and columns in bytes.
    Position position(const YAML::Mark& mark) {
        if (mark.line < 0 || mark.column < 0) return {};
        if (static_cast<std::size_t>(mark.line) >= lines_.size()) {
            return {mark.line + 1, mark.column + 1};
        }
        // Continues counting from the last mark, because one line can be the whole file.
        if (mark.line != counted_line_) counted_bytes_ = counted_characters_ = 0;
        counted_line_ = mark.line;
        const std::string_view line = lines_[static_cast<std::size_t>(mark.line)];
        const std::size_t bytes = std::min(static_cast<std::size_t>(mark.column), line.size());
        while (counted_bytes_ < bytes)
            counted_characters_ += starts_character(line[counted_bytes_++]);
        while (counted_bytes_ > bytes)
            counted_characters_ -= starts_character(line[--counted_bytes_]);
        return {mark.line + 1, counted_characters_ + 1};
    }

    Refused syntax(const YAML::Exception& error) {
        const Position at = position(error.mark);
        const auto line = static_cast<std::size_t>(at.line);
        if (line > 0 && line <= lines_.size()) {
            if (const auto tab = indenting_tab(lines_[line - 1])) {
                return {{at.line, static_cast<int>(*tab) + 1},
                        "a tab cannot indent in YAML; use spaces"};
            }
        }
        return {at, about_syntax(error.msg)};
    }

    void OnDocumentStart(const YAML::Mark& mark) override {
        if (tree_.root != nullptr) {
            throw Refused{position(mark),
                          "a second document starts here; write one document per file"};
        }
    }
    void OnDocumentEnd() override {}

    void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
        YamlNode& node = make(YamlNode::Kind::null, mark, anchor);
        // yaml-cpp marks a missing value at the next token. The key or the container is more
        // helpful.
        if (!open_.empty()) {
            node.position = key_ != nullptr ? key_->position : open_.back()->position;
        }
        attach(node);
    }

    void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
        const auto found = anchors_.find(anchor);
        if (found == anchors_.end())
            throw Refused{position(mark), "the alias has no anchor; define it first with '&'"};
        if (std::find(open_.begin(), open_.end(), found->second) != open_.end()) {
            throw Refused{position(mark),
                          "the alias refers to a value that contains it; write the value out"};
        }
        attach(*found->second);
    }

    void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  const std::string& value) override {
        YamlNode& node = make(YamlNode::Kind::scalar, mark, anchor);
        node.text = value;
        node.plain = tag == "?";
        attach(node);
    }

    void OnSequenceStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                         YAML::EmitterStyle::value /*style*/) override {
        open(make(YamlNode::Kind::sequence, mark, anchor), mark);
    }
    void OnSequenceEnd() override { close(); }

    void OnMapStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                    YAML::EmitterStyle::value /*style*/) override {
        open(make(YamlNode::Kind::map, mark, anchor), mark);
    }
    void OnMapEnd() override { close(); }

 private:
    YamlNode& make(YamlNode::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
        YamlNode& node = tree_.nodes.emplace_back();
        node.kind = kind;
        node.position = position(mark);
        if (anchor != YAML::NullAnchor) anchors_[anchor] = &node;
        return node;
    }

    void open(YamlNode& node, const YAML::Mark& mark) {
        if (open_.size() == deepest_nesting) {
            throw Refused{position(mark), fmt::format("nested more than {} deep; use fewer levels",
                                                      deepest_nesting)};
        }
        open_.push_back(&node);
        keys_.push_back(key_);
        key_ = nullptr;
    }

    void close() {
        YamlNode* node = open_.back();
        open_.pop_back();
        key_ = keys_.back();
        keys_.pop_back();
        attach(*node);
    }

    // Adds a complete node to its parent as an item, a key or a value, or makes it the root.
    void attach(YamlNode& node) {
        if (open_.empty()) {
            tree_.root = &node;
        } else if (YamlNode& parent = *open_.back(); parent.kind == YamlNode::Kind::sequence) {
            parent.items.push_back(&node);
        } else if (key_ == nullptr) {
            key_ = &node;
        } else {
            parent.entries.push_back({key_, &node});
            key_ = nullptr;
        }
    }

    YamlTree& tree_;
    std::vector<std::string_view> lines_;
    int counted_line_ = 0;
    std::size_t counted_bytes_ = 0;
    int counted_characters_ = 0;
    std::map<YAML::anchor_t, YamlNode*> anchors_;
    std::vector<YamlNode*> open_;        // sequences and maps that have not ended
    std::vector<const YamlNode*> keys_;  // for each of them, the key of its value
    const YamlNode* key_ = nullptr;      // the key whose value is next
};

}  // namespace

std::variant<YamlTree, Problem> parse_yaml(const std::string& text, const std::string& name) {
    constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
    std::string_view body = text;
    if (body.substr(0, byte_order_mark.size()) == byte_order_mark) {
        body.remove_prefix(byte_order_mark.size());
    }
    const auto refuse = [&name](const Refused& refused) {
        return Problem{name, refused.position.line, refused.position.column, "", refused.what};
    };
    if (const auto odd = find_odd_byte(body)) return refuse(*odd);

    YamlTree tree;
    TreeBuilder builder(body, tree);
    try {
        std::istringstream stream{std::string(body)};
        YAML::Parser parser(stream);
        while (parser.HandleNextDocument(builder)) {
        }
    } catch (const Refused& refused) {
        return refuse(refused);
    } catch (const YAML::Exception& error) {
        return refuse(builder.syntax(error));
    }
    return tree;
}

}  // namespace gpunbd::config
