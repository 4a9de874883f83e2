#include "server/attach/line.hpp"

#include <limits.h>

#include <string>

#include "server/keeping/line.hpp"

namespace gpunbd::attach {

void say(std::string_view text) {
    std::string line = "gpunbd attach: ";
    line += text.substr(0, PIPE_BUF - line.size() - 1);
    line += '\n';
    server::write_without_waiting(line);
}

}  // namespace gpunbd::attach
