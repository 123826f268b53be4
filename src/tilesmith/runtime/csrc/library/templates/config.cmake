# find_package(NAME CONFIG) with this folder in CMAKE_PREFIX_PATH gives the target NAME::NAME.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
if(NOT TARGET NAME::NAME)
  add_library(NAME::NAME KIND IMPORTED)
  set_target_properties(NAME::NAME PROPERTIES
    PLACE "${CMAKE_CURRENT_LIST_DIR}/lib/FILE"
    IMPORTED_IMPLIB "${CMAKE_CURRENT_LIST_DIR}/lib/NAME.lib" # of a DLL
    INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}/include"
    INTERFACE_LINK_LIBRARIES "LIBRARIES")
endif()
