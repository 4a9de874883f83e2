# Writes C++ that holds files: cmake -D OUTPUT=... -D "FILES=a;b" -P page_files.cmake
set(arrays "")
set(table "")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  string(MAKE_C_IDENTIFIER ${name} identifier)
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
  string(APPEND arrays "constexpr char ${identifier}[] = {${bytes}'\\0'};\n")
  string(APPEND table "    {\"${name}\", {${identifier}, sizeof ${identifier} - 1}},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"server/admin/api/page_files.hpp\"

namespace gpunbd::server::admin {

namespace {

${arrays}
constexpr PageFile all_page_files[] = {
${table}};

}  // namespace

std::span<const PageFile> page_files() { return all_page_files; }

}  // namespace gpunbd::server::admin
")
